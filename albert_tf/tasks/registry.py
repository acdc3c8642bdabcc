from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albert_tf.choices import OWN_KINDS
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.task import Task


def create_task(settings: FinetuningSettings, trained: Mapping[str, Any] | None = None) -> Task:
    """Makes the task that `settings.task` names; without a name, the labels decide.

    Only the task's own files are imported.
    """
    name = settings.task
    if name in ("", *OWN_KINDS):
        from albert_tf.tasks.own_data import own_task

        return own_task(settings, trained)
    if name == "pairs":
        from albert_tf.tasks.pairs import pairs_task

        return pairs_task(settings)
    if name in ("squad1", "squad2"):
        from albert_tf.tasks.squad.task import SquadTask

        return SquadTask(name, settings.data_dir)
    if name == "race":
        from albert_tf.tasks.race import RaceTask

        return RaceTask(Path(settings.data_dir))
    from albert_tf.tasks.glue import glue_task

    return glue_task(name, settings.data_dir)

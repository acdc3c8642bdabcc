from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from albert_tf.choices import OWN_KINDS
from albert_tf.tasks.glue import GLUE, glue_task
from albert_tf.tasks.own_data import own_task
from albert_tf.tasks.pairs import pairs_task
from albert_tf.tasks.race import RaceTask
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.tasks.task import Task

TASKS: dict[str, Callable[[FinetuningSettings], Task]] = {
    **dict.fromkeys(GLUE, lambda settings: glue_task(settings.task, settings.data_dir)),
    **dict.fromkeys(("squad1", "squad2"), lambda settings: SquadTask(settings.task, settings.data_dir)),
    "pairs": pairs_task,
    "race": lambda settings: RaceTask(Path(settings.data_dir)),
    **dict.fromkeys(OWN_KINDS, own_task),
}


def create_task(settings: FinetuningSettings, trained: Mapping[str, Any] | None = None) -> Task:
    """Makes the task that `settings.task` names; without a name, the labels decide."""
    if settings.task in ("", *OWN_KINDS):
        return own_task(settings, trained)
    return TASKS[settings.task](settings)

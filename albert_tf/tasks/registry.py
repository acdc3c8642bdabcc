"""Every task by name."""

from collections.abc import Callable
from pathlib import Path

from albert_tf.tasks.glue import GLUE, glue_task
from albert_tf.tasks.own_data import classification_task, regression_task, tagging_task
from albert_tf.tasks.race import RaceTask
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.tasks.task import Task
from tfrecords.errors import UserError

TASKS: dict[str, Callable[[FinetuningSettings], Task]] = {
    **{name: lambda settings: glue_task(settings.task, settings.data_dir) for name in GLUE},
    **{
        name: lambda settings: SquadTask(settings.task, settings.data_dir, settings.span_head, settings.exclude_ids)
        for name in ("squad1", "squad2")
    },
    "race": lambda settings: RaceTask(Path(settings.data_dir)),
    "classification": classification_task,
    "regression": regression_task,
    "tagging": tagging_task,
}


def create_task(settings: FinetuningSettings) -> Task:
    """Raises UserError for an unknown name, or what the task finds wrong with its settings."""
    if settings.task not in TASKS:
        raise UserError(f"--task={settings.task} is unknown; choose one of {', '.join(TASKS)}")
    return TASKS[settings.task](settings)

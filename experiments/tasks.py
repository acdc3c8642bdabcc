"""What a run's model is worth on tasks: a short fine-tuning, and its score on the dev file."""

import dataclasses
import functools
import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from albert_tf.loading import load
from albert_tf.model_files import load_task
from albert_tf.models.early_exit import EarlyExitModel
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training.batches import evaluation_batches
from albert_tf.training.finetuning import FREE_ON_RESUME, finetune
from albert_tf.training.preparation import prepare
from experiments.columns import TASKS
from experiments.runs import Run
from experiments.tables import Scale
from tfrecords.base import files
from tfrecords.base.errors import UserError

# By measure, the folder of its task's files.
FOLDERS = TASKS | {"early_exit": TASKS["sst2"]}
# How many steps in a row an answer stays the same before a row leaves.
PATIENCES = (1, 2, 3, 6)
# The model to start from is the run's own, wherever it lies.
_FREE_ON_RESUME = (*FREE_ON_RESUME, "init_from")


def score(run: Run, scale: Scale, task: str, data_dir: Path) -> float:
    """Fine-tunes a run's model and gives the main figure of the dev file, GLUE's: the best of the evaluations.

    Args:
        run: that is done.
        scale: whose `finetuning` says how.
        task: of `columns.TASKS`.
        data_dir: of its files.
    """
    settings = _settings(run, scale, task, data_dir)
    folder = finetune(settings, free=_FREE_ON_RESUME)
    metric = prepare(settings).main_metric.removeprefix("dev_")
    found = load_task(folder)["metrics"][metric]
    shutil.rmtree(folder)
    return found


def exit_scores(run: Run, scale: Scale, data_dir: Path) -> dict[str, float]:
    """Fine-tunes on SST-2 with a head after every step and lets rows leave when the answer stays the same.

    Returns:
        exit_score_all of all steps; and for each patience of PATIENCES exit_score_N and the mean of the steps that rows
        took, exit_steps_N.
    """
    settings = dataclasses.replace(_settings(run, scale, "sst2", data_dir), early_exit=True)
    folder, prepared = finetune(settings, free=_FREE_ON_RESUME), prepare(settings)
    model, split = load(folder).model, prepared.evaluation[0]
    found = {}
    for name, patience in (("all", model.encoder.config.num_steps), *((str(number), number) for number in PATIENCES)):
        logits, steps = _answers(model, split.rows, settings, float(patience))
        scores = prepared.task.score(split.examples, split.rows, logits)
        found[f"exit_score_{name}"] = scores[prepared.task.main_metric]
        found[f"exit_steps_{name}"] = float(steps.mean())
    shutil.rmtree(folder)
    return found


def _answers(model: EarlyExitModel, rows, settings: FinetuningSettings, patience: float) -> tuple[list, np.ndarray]:
    """By row the logits, and the steps."""
    logits: list = [None] * len(rows)
    steps = np.zeros(len(rows))
    for places, features in evaluation_batches(rows, settings.eval_batch_size, settings.max_seq_length):
        answers = model.answer_early(features, patience, "patience")
        for place, one in zip(places, np.asarray(answers["logits"])):
            logits[place] = one
        steps[places] = np.asarray(answers["steps"])
    return logits, steps


def _settings(run: Run, scale: Scale, task: str, data_dir: Path) -> FinetuningSettings:
    return scale.finetuning_settings(
        task=task, data_dir=str(data_dir), output_dir=str(run.folder / f"task-{task}"),
        init_from=str(run.model_folder), seed=run.seed,
    )  # fmt: skip


def check(scale: Scale, measures: Sequence[str], tasks_dir: Path | None) -> None:
    """Meets at the door what would end a fine-tuning after the runs.

    Args:
        scale: whose `finetuning` says how.
        measures: of tasks, by name.
        tasks_dir: folder of the tasks' folders; None where none was given.

    Raises:
        UserError: the scale's settings are none of a fine-tuning, or a task has no folder.
    """
    scale.finetuning_settings(task="sst2", data_dir="data", output_dir="task", init_from="model", seed=1)
    for folder in [tasks_dir / FOLDERS[measure] for measure in measures] if tasks_dir else []:
        if not folder.is_dir():
            raise UserError(f"no folder '{folder}'; --tasks_dir names the one that GLUE's folders are in")


@functools.cache
def digest(folder: Path) -> str:
    """Names what is in a task's files."""
    found = {path.name: files.sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:10]

"""What a run's model is worth on tasks: a short fine-tuning, and its score on the dev file."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np

from albert_tf.loading import load
from albert_tf.model_files import load_task
from albert_tf.models.early_exit import EarlyExitModel
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.training.batches import evaluation_batches
from albert_tf.training.finetuning import finetune
from albert_tf.training.preparation import prepare
from experiments.runs import Run
from experiments.tables import Scale
from tfrecords.base.errors import UserError

# The tasks, and the folders of their files as GLUE has them.
FOLDERS = {"sst2": "SST-2", "cola": "CoLA", "mrpc": "MRPC", "rte": "RTE", "stsb": "STS-B"}
# How many steps in a row an answer stays the same before a row leaves.
PATIENCES = (1, 2, 3, 6)


def score(run: Run, scale: Scale, task: str, data_dir: Path) -> float:
    """Fine-tunes a run's model and gives the main figure of the dev file, GLUE's.

    Args:
        run: that is done.
        scale: whose `finetuning` says how.
        task: of FOLDERS.
        data_dir: of its files.
    """
    settings = _settings(run, scale, task, data_dir)
    folder = finetune(settings)
    metric = prepare(settings).main_metric.removeprefix("dev_")
    found = load_task(folder)["metrics"][metric]
    shutil.rmtree(folder)
    return found


def exit_scores(run: Run, scale: Scale, task: str, data_dir: Path) -> dict[str, float]:
    """Fine-tunes with a head after every step and lets rows leave when the answer stays the same.

    Returns:
        exit_score_all of all steps; and for each patience of PATIENCES exit_score_N and the mean of the steps that rows
        took, exit_steps_N.
    """
    settings = dataclasses.replace(_settings(run, scale, task, data_dir), early_exit=True)
    folder, prepared = finetune(settings), prepare(settings)
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
    if not scale.finetuning:
        raise UserError(f"scale {scale.name} does not say how to fine-tune")
    return FinetuningSettings(
        task=task, data_dir=str(data_dir), output_dir=str(run.folder / f"task-{task}"),
        init_from=str(run.model_folder), seed=run.seed, **scale.finetuning,
    )  # fmt: skip

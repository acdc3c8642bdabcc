"""Combines the outputs of several fine-tuned models."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from albert_tf.config import AlbertConfig
from albert_tf.loading.hub import find_model
from albert_tf.loading.load import load
from albert_tf.loading.model_files import load_task
from albert_tf.tasks.prediction import predict
from albert_tf.tasks.registry import create_task
from albert_tf.tasks.settings import EnsembleSettings, FinetuningSettings
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.tasks.task import Task
from albert_tf.training.preparation import Split
from albert_tf.training.start import check_length
from tfrecords.answers.spans import IMPOSSIBLE
from tfrecords.answers.texts import truncation_line
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.vocabularies.comparing import difference


def combine(members: Sequence[Sequence[Any]]) -> list[Any]:
    """Combines several models' lists of outputs row by row: averages logits, or calls `combine_spans`."""
    return [_combine_row(outputs) for outputs in zip(*members, strict=True)]


def _combine_row(outputs: Sequence[Any]) -> Any:
    if isinstance(outputs[0], Mapping):
        return combine_spans(outputs)
    return np.mean(np.asarray(outputs, np.float64), axis=0)


def _spans_of(output: Mapping[str, Any]) -> dict[str, Any]:
    spans = output["spans"]
    legal = np.asarray(spans["score"]) > IMPOSSIBLE / 2
    needed: dict[str, Any] = {"spans": {name: np.asarray(values)[legal] for name, values in spans.items()}}
    if "answerable_logits" in output:
        return needed | {"answerable_logits": np.atleast_1d(output["answerable_logits"])}
    # "No answer" is scored at [CLS], a row's first token or its last one: all positions are returned.
    return needed | {side: np.asarray(output[side]) for side in ("start_log_probs", "end_log_probs")}


def combine_spans(outputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combines several models' spans for one row.

    A span's score is the mean over the models that proposed it. Scores of "no answer" are not averaged yet: first
    each model's minimum over all windows must be known (squad_utils.py:855-908, 942-953 of google-research/albert).
    """
    outputs = [_spans_of(output) for output in outputs]
    if len({tuple(output) for output in outputs}) > 1:
        raise UserError("plain and joint span heads score differently that there is no answer; combine models of one")
    scores: dict[tuple[int, int], list[float]] = {}
    for output in outputs:
        spans = output["spans"]
        for first, last, score in zip(spans["start_index"], spans["end_index"], spans["score"]):
            scores.setdefault((int(first), int(last)), []).append(float(score))
    means = sorted(((np.mean(values), *span) for span, values in scores.items()), key=lambda one: -one[0])
    score, first, last = np.array(means).reshape(-1, 3).T
    spans = {"start_index": first.astype(int), "end_index": last.astype(int), "score": score}
    combined: dict[str, Any] = {"spans": spans}
    if "answerable_logits" in outputs[0]:
        return combined | {"answerable_logits": np.concatenate([output["answerable_logits"] for output in outputs])}
    sides = ("start_log_probs", "end_log_probs")
    return combined | {side: np.stack([output[side] for output in outputs]) for side in sides}


def ensemble(settings: EnsembleSettings) -> dict[str, Any]:
    """Writes combined predictions, and returns the metrics of each model and of the ensemble, as in ensemble.json."""
    folders = [find_model(folder) for folder in settings.models.split(",") if folder]
    if not folders:
        raise UserError("--models names no folder; give several, separated by commas")
    task = _task(settings, folders[0])
    tokenizer, length = _in_common(folders, task, settings.max_seq_length)
    splits = _splits(task, tokenizer, length)
    if not splits:
        raise UserError(f"--data_dir={settings.data_dir} holds no evaluation or test file for --task={settings.task}")
    output_dir = files.make_output_dir(settings.output_dir)
    metrics, members = {}, []
    for folder in folders:
        model = load(folder).model
        found = [predict(model, split.rows, settings.eval_batch_size, length) for split in splits]
        metrics[str(folder)] = _scores(task, splits, found)
        print(f"{folder}: {_shown(metrics[str(folder)])}")
        members.append(found)
    together = [combine(of_split) for of_split in zip(*members)]
    _use_thresholds(task, folders)
    summary = {"models": metrics, "ensemble": _scores(task, splits, together)}
    print(f"ensemble: {_shown(summary['ensemble'])}")
    folder = files.make_output_dir(output_dir / "predictions")
    for split, outputs in zip(splits, together):
        for path in task.write_predictions(folder, split.name, split.examples, split.rows, outputs):
            print(f"wrote {path}")
    print(truncation_line({split.name: split.rows.truncation for split in splits}))
    files.write_json(output_dir / "ensemble.json", summary)
    return summary


def _task(settings: EnsembleSettings, first: Path) -> Task:
    same = {field.name for field in dataclasses.fields(FinetuningSettings)} - {"max_seq_length"}
    values = {name: value for name, value in dataclasses.asdict(settings).items() if name in same}
    return create_task(FinetuningSettings(init_from=str(first), **values), _trained(first))


def _trained(folder: Path) -> dict[str, Any]:
    task = load_task(folder)
    if "kind" not in (task or {}):
        raise UserError(f"'{folder}' has no task.json of run_finetuning; give folders that it wrote")
    return task


def _in_common(folders: Sequence[Path], task: Task, max_seq_length: int) -> tuple[Tokenizer, int]:
    first, lengths = None, [max_seq_length] if max_seq_length else []
    for folder in folders:
        trained = _trained(folder)
        wanted = task.describe()
        for name in ("kind", "labels"):
            if trained[name] != wanted[name]:
                raise UserError(
                    f"'{folder}' was trained for {name} {trained[name]}, --task={task.name} is of {wanted[name]}"
                )
        tokenizer = load_tokenizer(folder)
        first = first or tokenizer
        if found := difference(tokenizer, first):
            raise UserError(
                f"'{folder}' has another tokenizer than '{folders[0]}' ({found}); an ensemble reads the same tokens"
            )
        config = AlbertConfig.from_json(folder / "config.json")
        first = first.with_cls_last(config.spec.last_token)
        check_length(max_seq_length, config, folder, "--max_seq_length")
        if not max_seq_length:
            lengths.append(trained["max_seq_length"])
    return first, min(lengths)


def _splits(task: Task, tokenizer: Tokenizer, max_seq_length: int) -> list[Split]:
    return [
        Split(name, examples, task.rows(examples, tokenizer, max_seq_length, training=False))
        for name in (*task.evaluation_splits, *task.test_splits)
        if (examples := task.read(name)) is not None
    ]


def _scores(task: Task, splits: Sequence[Split], outputs: Sequence[Sequence[Any]]) -> dict[str, float]:
    scores = {}
    for split, found in zip(splits, outputs):
        if split.name in task.evaluation_splits:
            for name, value in task.score(split.examples, split.rows, found).items():
                scores[f"{split.name}_{name}"] = value
    return scores


def _use_thresholds(task: Task, folders: Sequence[Path]) -> None:
    # The models' median null threshold: a model that never answers has about -1e30.
    thresholds = [_trained(folder)["null_threshold"] for folder in folders]
    if None not in thresholds:
        cast(SquadTask, task).null_threshold = float(np.median(thresholds))


def _shown(scores: dict[str, float]) -> str:
    figures = ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
    return figures or "nothing was measured, as --data_dir has no dev file"

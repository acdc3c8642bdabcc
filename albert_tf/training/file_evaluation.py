import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from albert_tf.loaded import Loaded
from albert_tf.loading import answers
from albert_tf.loading.load import load
from albert_tf.models.classifiers import AlbertClassifier, AlbertRegressor, AlbertTokenClassifier
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.tasks.glue import GLUE
from albert_tf.tasks.multilabel import THRESHOLD, MultilabelTask
from albert_tf.tasks.own_data import file_task
from albert_tf.tasks.pairs import measured_pairs
from albert_tf.tasks.resolving import open_labelled_file
from albert_tf.tasks.rows import FeatureRows
from albert_tf.tasks.tables.data_file import FileOptions
from albert_tf.tasks.tables.held_out import trained_on
from albert_tf.tasks.task import Task
from albert_tf.training.baseline import baseline_scores
from albert_tf.training.figures import compared, compared_line, figures_of, lines_of
from albert_tf.training.loop.batches import predict
from albert_tf.training.preparation import Split
from tfrecords.answers.truncation import truncation_line
from tfrecords.base import files
from tfrecords.base.errors import UserError

_KINDS = {
    AlbertClassifier: "classification",
    AlbertRegressor: "regression",
    AlbertTokenClassifier: "tagging",
    AlbertSentenceEmbedder: "pairs",
}


def evaluate_file(
    path: str, options: FileOptions, label_column: str, output_dir: str, depth: int = 0, batch_size: int = 64
) -> dict[str, Any]:
    """Evaluates a model on a file of labelled rows; writes, prints and returns the results.

    Unset `options` and an empty `label_column` default to the values used in training.
    """
    model = evaluated(load(path, depth=depth), path, batch_size)
    return evaluate_model(model, path, options, label_column, output_dir)


class Evaluated(NamedTuple):
    """A model to evaluate.

    Attributes:
        kind: of its task; "pairs" of an embedder.
        names: of its classes.
        task: its task.json.
        answer: maps rows to the model's outputs.
        run: the folder of its training run, if that is known.
        reference: maps rows to the outputs in float32 of the model that was exported.
    """

    kind: str
    names: tuple[str, ...]
    task: Mapping[str, Any]
    tokenizer: Any
    max_seq_length: int
    answer: Callable[[FeatureRows], Sequence[np.ndarray]]
    run: str = ""
    reference: Callable[[FeatureRows], Sequence[np.ndarray]] | None = None


def evaluated(loaded: Loaded, path: str, batch_size: int = 64) -> Evaluated:
    """Returns a loaded model to evaluate."""
    kind, preprocessor = kind_of(loaded.model, path), loaded.preprocessor()
    length = preprocessor.max_seq_length
    is_classes = kind not in ("regression", "pairs")
    names = tuple(loaded.task.get("labels") or answers.class_names(loaded.model)) if is_classes else ()
    answer = functools.partial(predict, loaded.model, batch_size=batch_size, max_seq_length=length)
    return Evaluated(kind, names, loaded.task, preprocessor.tokenizer, length, answer, path)


def measure(
    model: Evaluated, options: FileOptions, label_column: str = "", most: int = 0
) -> tuple[Task, Split, Any, Any]:
    """Reads a file's rows; returns them with the model's outputs and, if there is one, those of the reference.

    `most`: number of rows, from all over the file; 0: all.
    """
    calls = [call for call in (model.answer, model.reference) if call]
    if model.kind == "pairs":
        task: Task = (pairs := measured_pairs(options, model.task))
        examples = _some(task.read("dev"), most)
        columns = pairs.columns(examples, model.tokenizer, model.max_seq_length)
        rows, outputs = columns[0], [np.stack([call(one) for one in columns], axis=1) for call in calls]
        rows = dataclasses.replace(rows, truncation=sum((one.truncation for one in columns[1:]), rows.truncation))
    else:
        task = _task(model, options, label_column)
        examples = _some(task.read("dev"), most)
        rows = task.rows(examples, model.tokenizer, model.max_seq_length, training=True)
        outputs = [call(rows) for call in calls]
    return task, Split("predictions", examples, rows), outputs[0], outputs[1] if len(outputs) > 1 else None


def _some(examples: list | None, most: int) -> list:
    assert examples
    count = len(examples)
    return [examples[place * count // most] for place in range(most)] if 0 < most < count else examples


def evaluate_model(
    model: Evaluated, path: str, options: FileOptions, label_column: str, output_dir: str
) -> dict[str, Any]:
    """Implements `evaluate_file` for a model that is open."""
    task, split, outputs, expected = measure(model, options, label_column)
    if count := trained_on(model.run, map(task.texts, split.examples)):
        print(
            f"warning: {count:,} of {len(split.examples):,} rows were trained on: their scores say nothing of new texts"
        )
    if data_file := getattr(task, "data_file", None):
        print(data_file)
    folder = files.make_output_dir(output_dir)
    temperature = model.task.get("calibration", {}).get("temperature", 1.0)
    picture = folder / "confusion.png"
    figures = figures_of(task, split, outputs, temperature, picture)
    answer, baseline = baseline_scores(task, split.rows, split) or ("", {})
    report = {"model": path, "data_file": options.path} | figures
    report |= {"baseline": {"answer": answer, "metrics": baseline}, "truncated": split.rows.truncation.shares()}
    if expected is not None:
        report["float32"] = compared(task, split, outputs, expected)
    written = task.write_predictions(folder, split.name, split.examples, split.rows, outputs)
    written += [picture] * ("confusion" in report)
    files.write_json(folder / "evaluation.json", report)
    for name, value in report["metrics"].items():
        constant = f"   baseline {baseline[name]:9.4f} ({answer})" if baseline else ""
        print(f"{name:20} {value:9.4f}{constant}")
    for line in lines_of(report):
        print(line)
    if "float32" in report:
        print(compared_line(report["float32"]))
    print(truncation_line({Path(options.path).name: split.rows.truncation}))
    for file in (*written, folder / "evaluation.json"):
        print(f"wrote {file}")
    return report


def _task(model: Evaluated, options: FileOptions, label_column: str) -> Task:
    kind, names = model.kind, model.names
    # GLUE's files call some classes 0 and 1.
    codes = GLUE.get(model.task.get("task", ""), {}).get("label_names") or {}
    known = tuple(dict.fromkeys((*names, *codes)))
    options = dataclasses.replace(options, task=kind, dev_fraction=1.0, known=known)
    data_file = open_labelled_file(options, model.task, label_column)
    there = {name for name, count in data_file.labels.items() if count}
    if kind == "classification" and not there <= set(names):
        if not there <= set(codes):
            raise UserError(f"'{options.path}' names classes in two ways: {', '.join(sorted(there))}; use one of them")
        return file_task(data_file, codes)
    task = file_task(data_file, {name: name for name in names})
    if isinstance(task, MultilabelTask):
        return dataclasses.replace(task, thresholds=tuple(np.ravel(model.task.get("threshold", THRESHOLD))))
    return task


def kind_of(model: keras.Model, path: str) -> str:
    """Returns a model's kind of task, such as "tagging"; raises UserError if the model predicts no labels."""
    if getattr(model, "multi_label", False):
        return "multilabel"
    for of_kind, kind in _KINDS.items():
        if isinstance(model, of_kind):
            return kind
    raise UserError(
        f"'{path}' holds an {type(model).__name__}; --data_file is for models that give texts classes, labels, numbers "
        "or tags, such as run_finetuning writes"
    )

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from albert_tf.loading import answers
from albert_tf.loading.load import load
from albert_tf.models.classifiers import AlbertClassifier, AlbertRegressor, AlbertTokenClassifier
from albert_tf.tasks.glue import GLUE
from albert_tf.tasks.multilabel import MultilabelTask
from albert_tf.tasks.own_data import file_task
from albert_tf.tasks.prediction import predict
from albert_tf.tasks.resolving import open_labelled_file
from albert_tf.tasks.rows import FeatureRows
from albert_tf.tasks.tables.data_file import FileOptions
from albert_tf.tasks.tagging import TaggingTask
from albert_tf.tasks.task import Task
from albert_tf.tasks.text_task import TextTask
from albert_tf.training import pictures
from albert_tf.training.baseline import baseline_scores
from albert_tf.training.preparation import Split
from tfrecords.answers.texts import truncation_line
from tfrecords.base import files
from tfrecords.base.errors import UserError

_KINDS = {AlbertClassifier: "classification", AlbertRegressor: "regression", AlbertTokenClassifier: "tagging"}
# A confusion matrix of more classes is only in the plot and the JSON file.
_MOST_PRINTED = 8


def evaluate_file(
    path: str, options: FileOptions, label_column: str, output_dir: str, depth: int = 0, batch_size: int = 64
) -> dict[str, Any]:
    """Evaluates a model on a file of labelled rows; writes, prints and returns the results.

    Unset `options` and an empty `label_column` default to the values used in training.
    """
    loaded = load(path, depth=depth)
    kind, preprocessor = kind_of(loaded.model, path), loaded.preprocessor()
    length = preprocessor.max_seq_length
    names = () if kind == "regression" else tuple(loaded.task.get("labels") or answers.class_names(loaded.model))
    answer = functools.partial(predict, loaded.model, batch_size=batch_size, max_seq_length=length)
    model = Evaluated(kind, names, loaded.task, preprocessor.tokenizer, length, answer)
    return evaluate_model(model, path, options, label_column, output_dir)


class Evaluated(NamedTuple):
    """A model to evaluate: kind of task, classes, task.json, rows of tokens, and a function from rows to outputs."""

    kind: str
    names: tuple[str, ...]
    task: Mapping[str, Any]
    tokenizer: Any
    max_seq_length: int
    answer: Callable[[FeatureRows], Sequence[np.ndarray]]


def evaluate_model(
    model: Evaluated, path: str, options: FileOptions, label_column: str, output_dir: str
) -> dict[str, Any]:
    """Implements `evaluate_file` for a model that is open."""
    task = _task(model, options, label_column)
    examples = task.read("dev")
    assert examples
    rows = task.rows(examples, model.tokenizer, model.max_seq_length, training=True)
    split, outputs = Split("predictions", examples, rows), model.answer(rows)
    answer, baseline = baseline_scores(task, rows, split) or ("", {})
    report = {
        "model": path,
        "data_file": options.path,
        "rows": len(examples),
        "metrics": task.score(examples, rows, outputs),
        "baseline": {"answer": answer, "metrics": baseline},
        "truncated": rows.truncation.shares(),
    }
    folder = files.make_output_dir(output_dir)
    written = task.write_predictions(folder, split.name, examples, rows, outputs)
    written += _draw(folder, task, split, outputs, report)
    files.write_json(folder / "evaluation.json", report)
    print("\n".join(_lines(report)))
    print(truncation_line({Path(options.path).name: rows.truncation}))
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
    print(data_file)
    there = {name for name, count in data_file.labels.items() if count}
    if kind == "classification" and not there <= set(names):
        if not there <= set(codes):
            raise UserError(f"'{options.path}' names classes in two ways: {', '.join(sorted(there))}; use one of them")
        return file_task(data_file, codes)
    return file_task(data_file, {name: name for name in names})


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


def _draw(folder: Path, task: Task, split: Split, outputs: Sequence[np.ndarray], report: dict[str, Any]) -> list[Path]:
    """Draws the confusion matrix of a task whose texts or words have one class each."""
    if isinstance(task, TaggingTask):
        numbers = {name: number for number, name in enumerate(task.labels)}
        found = itertools.chain.from_iterable(task.predictions(split.examples, split.rows, outputs))
        given = itertools.chain.from_iterable(example.tags for example in split.examples)
        # A word that was cut off may have no tag.
        pairs = [(label, numbers[tag]) for label, tag in zip(given, found) if tag in numbers]
        labels, predictions = np.array(pairs, np.int64).reshape(-1, 2).T
    elif isinstance(task, MultilabelTask) or not isinstance(task, TextTask) or task.labels is None:
        return []
    else:
        labels, predictions = np.array([example.label for example in split.examples]), task.predictions(outputs)
    counts = pictures.confusion(labels, predictions, len(task.labels))
    report["labels"], report["confusion"] = list(task.labels), counts.tolist()
    pictures.draw_classes(path := folder / "confusion.png", task.labels, counts)
    return [path]


def _lines(report: dict[str, Any]) -> Iterator[str]:
    baseline = report["baseline"]
    for name, value in report["metrics"].items():
        yield f"{name:20} {value:9.4f}   baseline {baseline['metrics'][name]:9.4f} ({baseline['answer']})"
    names = report.get("labels", ())
    if not 0 < len(names) <= _MOST_PRINTED:
        return
    widths = [max(len(name), 6) for name in names]
    first = max(len(name) for name in (*names, "label"))
    yield f"{'label':{first}}   predicted " + " ".join(f"{name:>{width}}" for name, width in zip(names, widths))
    for name, row in zip(names, report["confusion"]):
        yield f"{name:{first}}   {'':9} " + " ".join(f"{count:>{width}}" for count, width in zip(row, widths))

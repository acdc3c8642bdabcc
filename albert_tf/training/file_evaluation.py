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
from albert_tf.tasks.pairs import PairsTask, measured_pairs
from albert_tf.tasks.prediction import predict
from albert_tf.tasks.resolving import open_labelled_file
from albert_tf.tasks.rows import FeatureRows, text_rows
from albert_tf.tasks.tables.data_file import FileOptions
from albert_tf.tasks.tables.held_out import of_run, trained_on
from albert_tf.tasks.task import Task
from albert_tf.training.figures import baseline_scores, figures_of, lines_of
from albert_tf.training.preparation import Split
from tfrecords.answers.texts import TextModel, truncation_line
from tfrecords.base import files
from tfrecords.base.errors import UserError

_KINDS = {
    AlbertClassifier: "classification",
    AlbertRegressor: "regression",
    AlbertTokenClassifier: "tagging",
    AlbertSentenceEmbedder: "pairs",
}


def evaluate_file(
    path: str, options: FileOptions, output_dir: str, depth: int = 0, batch_size: int = 64
) -> dict[str, Any]:
    """Evaluates a model on a file of labelled rows; writes, prints and returns the results.

    Unset `options` default to the values used in training.
    """
    model = evaluated(load(path, depth=depth), path, batch_size)
    return report_on(model, measure(model, options), options.path, output_dir)


class Evaluated(NamedTuple):
    """A model to evaluate.

    Attributes:
        path: its name in the report.
        kind: of its task; "pairs" of an embedder.
        names: of its classes.
        answer: maps rows to the model's outputs.
        run: the folder of its training, or a model file in it.
    """

    path: str
    model: TextModel
    kind: str
    names: tuple[str, ...]
    task: Mapping[str, Any]
    tokenizer: Any
    max_seq_length: int
    answer: Callable[[FeatureRows], Sequence[np.ndarray]]
    run: str


class Measured(NamedTuple):
    """A model's outputs for the rows of a file."""

    task: Task
    split: Split
    outputs: Any


def evaluated(loaded: Loaded, path: str, batch_size: int = 64) -> Evaluated:
    """Returns a loaded model to evaluate."""
    kind, preprocessor = kind_of(loaded.model, path), loaded.preprocessor()
    length, has_names = preprocessor.max_seq_length, kind not in ("regression", "pairs")
    names = tuple(loaded.task.get("labels") or answers.class_names(loaded.model)) if has_names else ()
    answer = functools.partial(predict, loaded.model, batch_size=batch_size, max_seq_length=length)
    return Evaluated(path, loaded, kind, names, loaded.task, preprocessor.tokenizer, length, answer, loaded.source)


def measure(model: Evaluated, options: FileOptions, most: int = 0) -> Measured:
    """Returns a model's outputs for a file; `most` is the number of rows, from all over the file, or 0 for all."""
    task = measured_pairs(options, model.model) if model.kind == "pairs" else _task(model, options)
    examples = task.read("dev")
    assert examples
    examples = examples[:: -(-len(examples) // most) if most else 1]
    if isinstance(task, PairsTask):
        texts = [text for example in examples for text in example.texts]
        rows = text_rows(model.tokenizer, [texts], model.max_seq_length)
        return Measured(task, Split("predictions", examples, rows), task.taught(examples))
    rows = task.rows(examples, model.tokenizer, model.max_seq_length, training=True)
    return Measured(task, Split("predictions", examples, rows), model.answer(rows))


def report_on(model: Evaluated, measured: Measured, data_file: str, output_dir: str) -> dict[str, Any]:
    """Writes, prints and returns the scores and figures of a model."""
    task, split, outputs = measured
    if file := getattr(task, "data_file", None):
        print(file)
    texts = [example.texts for example in split.examples]
    if count := trained_on(model.run, texts):
        print(f"warning: {count:,} of {len(texts):,} rows were trained on: their scores say nothing of new texts")
    answer, baseline = baseline_scores(task, split.rows, split) or ("", {})
    folder = files.make_output_dir(output_dir)
    picture, temperature = folder / "confusion.png", model.task.get("calibration", {}).get("temperature", 1.0)
    report: dict[str, Any] = {
        "model": model.path,
        "data_file": data_file,
        "rows": len(texts),
        "metrics": task.score(split.examples, split.rows, outputs),
        "baseline": {"answer": answer, "metrics": baseline},
        "truncated": split.rows.truncation.shares(),
    } | figures_of(task, split, outputs, temperature, picture)
    written = task.write_predictions(folder, split.name, split.examples, split.rows, outputs)
    written += [picture] * ("confusion" in report)
    files.write_json(folder / "evaluation.json", report)
    for name, value in report["metrics"].items():
        constant = f"   baseline {baseline[name]:9.4f} ({answer})" if baseline else ""
        print(f"{name:20} {value:9.4f}{constant}")
    for line in lines_of(report):
        print(line)
    print(truncation_line({Path(data_file).name: split.rows.truncation}))
    for file in (*written, folder / "evaluation.json"):
        print(f"wrote {file}")
    return report


def _task(model: Evaluated, options: FileOptions) -> Task:
    kind, names = model.kind, model.names
    # GLUE's files call some classes 0 and 1.
    codes = GLUE.get(model.task.get("task", ""), {}).get("label_names") or {}
    known = tuple(dict.fromkeys((*names, *codes)))
    options = dataclasses.replace(options, task=kind, dev_fraction=1.0, known=known)
    trained = files.read_object(of_run(model.run, "run.json") or "")
    data_file = open_labelled_file(options, model.task, trained.get("label_column", ""))
    there = {name for name, count in data_file.labels.items() if count}
    if kind == "classification" and not there <= set(names):
        if not there <= set(codes):
            raise UserError(f"'{options.path}' names classes in two ways: {', '.join(sorted(there))}; use one of them")
        return file_task(data_file, codes)
    task = file_task(data_file, {name: name for name in names})
    if isinstance(task, MultilabelTask):
        return dataclasses.replace(task, threshold=model.task.get("threshold", THRESHOLD))
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

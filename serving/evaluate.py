"""The command `albert-tf evaluate` with an export as --model, and how near an export is to its model."""

import tfrecords.base.machine.quiet_tensorflow  # noqa: F401, I001  (first of all)

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.loaded import Loaded
from albert_tf.loading.hub import check_model
from albert_tf.loading.load import load
from albert_tf.run_evaluation import EvaluationSettings, results_folder
from albert_tf.suites.run import evaluate_embeddings
from albert_tf.suites.sets import find_sets
from albert_tf.tasks.metrics import pearson
from albert_tf.tasks.rows import FeatureRows
from albert_tf.tasks.tables.data_file import FileOptions
from albert_tf.training.calibration import choices_of
from albert_tf.training.file_evaluation import Evaluated, Measured, evaluated, measure, report_on
from serving.lite import LiteModel
from serving.manifest import LITERT, read_manifest, versions_of
from tfrecords.answers.numbers import unit
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main

# The kinds of task by those of a LiteRT version's answers.
_KINDS = {
    "classes": "classification", "labels": "multilabel", "numbers": "regression", "tags": "tagging", "vectors": "pairs",
}  # fmt: skip
# Rows that decide whether an export is near enough; of so many labels one may change.
_MOST, _LABELS = 500, 200
_LEAST_COSINE = 0.99
# What `load` takes of an export's settings.
_LOADED = ("model", "tokenizer", "lower_case", "keep_accents", "depth", "other_tokenizer")


def main(settings: EvaluationSettings) -> None:
    """Evaluates an export's newest version on a table; a LiteRT version of an embedder also on a suite."""
    if given := settings.given(("depth", "train_data", "eval_data")):
        raise UserError(f"{given} is not for an export; give --data_file=... or --suite=embeddings")
    place = Path(settings.model)
    version = (versions_of(place) or [place])[-1]
    folder = version.parent / "evaluation"
    if settings.suite:
        if not (version / LITERT).is_file():
            raise UserError("--suite is not for a SavedModel; give the model that was exported, or a LiteRT version")
        sets, output_dir = find_sets(settings.data_dir), settings.output_dir or str(folder / settings.suite)
        model = LiteModel(version)
        evaluate_embeddings(settings.model, sets, output_dir, batch_size=settings.batch_size, loaded=model)
        return
    options, opened = FileOptions.of(settings), open_version(version, settings.batch_size)
    found = measure(opened, options)
    report_on(opened, found, options.path, settings.output_dir or str(results_folder(folder, settings.data_file)))
    try:
        loaded = load_exported(read_manifest(version).get("export", {}))
    except UserError as error:
        print(f"not compared with the model that was exported: {error}")
    else:
        print(nearness(found, measure(evaluated(loaded, loaded.source, settings.batch_size), options))[1])


def load_exported(settings: Mapping[str, Any]) -> Loaded:
    """Loads the model that an export's settings name."""
    check_model(settings.get("model", ""), settings.get("allow_pickle", False))
    return load(*(settings[name] for name in _LOADED))


def open_version(version: Path, batch_size: int = 64) -> Evaluated:
    """Returns a version to evaluate. A SavedModel needs the folder of its model, which has the tokenizer."""
    exported = read_manifest(version).get("export", {})
    if not (version / LITERT).is_file():
        return evaluated(_served(version, load_exported(exported)), str(version), batch_size)
    model = LiteModel(version)
    answer, rows = model.description.answer, model.rows
    if answer.kind not in _KINDS or rows is None:
        raise UserError(
            f"'{version}' answers {answer.kind}, or takes no texts; --data_file is for versions that give texts "
            "classes, labels, numbers, tags or vectors"
        )
    task = {"inputs": list(answer.inputs or ()), "threshold": answer.threshold}
    in_rows = rows.tokenizer, rows.max_seq_length, functools.partial(_answers, model)
    return Evaluated(str(version), model, _KINDS[answer.kind], answer.labels, task, *in_rows, exported.get("model", ""))


def _served(version: Path, loaded: Loaded) -> Loaded:
    """Returns the model of which a SavedModel was exported, changed to answer by it."""
    # Registers the operations of tokenizers.
    import tensorflow_text  # noqa: F401

    saved = tf.saved_model.load(str(version))
    name = "ids" if "ids" in saved.signatures else "serving_default"
    inputs, outputs = saved.signatures[name].structured_input_signature[1], saved.signatures[name].structured_outputs
    output = next(one for one in ("embedding", "value", "logits") if one in outputs)

    def call(features: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        given = {"lengths": tf.reduce_sum(features["input_mask"], axis=1), **features}
        # What was loaded, since a signature does not keep its variables.
        answer = saved.signatures[name](**{one: given[one] for one in inputs})[output]
        return answer[:, None] if output == "value" else answer

    setattr(loaded.model, "call", call)  # noqa: B010  (the class's method is of all models)
    return replace(loaded, task=loaded.task | {"max_seq_length": read_manifest(version)["max_seq_length"]})


def _answers(model: LiteModel, rows: FeatureRows) -> list[np.ndarray]:
    ids, segments = (rows.tokens[name] for name in ("input_ids", "segment_ids"))
    given = [
        {"input_ids": ids[row], "segment_ids": segments[row], "lengths": np.array(len(ids[row]), np.int32)}
        for row in range(len(rows))
    ]
    name = model.description.answer.KINDS[model.description.answer.kind]
    return [np.atleast_1d(one[name]) for one in model.run(given, (name,))]


def comparison(loaded: Loaded, version: Path, table: Path) -> tuple[bool, str]:
    """Returns `nearness` of a version to its model on some rows of a table."""
    models = open_version(version), evaluated(loaded, loaded.source)
    return nearness(*(measure(model, FileOptions(str(table)), most=_MOST) for model in models))


def nearness(found: Measured, expected: Measured) -> tuple[bool, str]:
    """Returns whether answers are near enough to those of float32, and a clause with both scores.

    At most one label in 200 is another, each vector's cosine is at least .99, and so is the correlation of numbers.
    """
    both, kind = (found, expected), found.task.kind
    scores, other_scores = (one.task.score(*one.split[1:], one.outputs) for one in both)
    parts = [f"{name} {value:.4g} (float32 {other_scores[name]:.4g})" for name, value in scores.items()]
    if kind == "pairs":
        vectors = [unit(np.asarray(one.outputs)) for one in both]
        cosines = np.sum(vectors[0] * vectors[1], axis=-1)
        is_near = cosines.min() >= _LEAST_COSINE
        parts.append(f"cosines {cosines.mean():.4f}, at least {cosines.min():.4f}")
    elif kind == "regression":
        correlation = pearson(*(np.ravel(one.outputs) for one in both))
        is_near = correlation >= _LEAST_COSINE
        parts.append(f"correlation {correlation:.4f}")
    else:
        answered = [one.task.answered(*one.split[1:], one.outputs) for one in both]
        is_tags = kind == "tagging"
        labels = [choices_of(one)[0].argmax(axis=1) if is_tags else [of.prediction for of in one] for one in answered]
        changed, count = sum(one != other for one, other in zip(*labels)), len(labels[0])
        is_near = changed * _LABELS <= count
        parts.append(f"{changed:,} of {count:,} labels changed")
    return bool(is_near), ", ".join(parts)


def run() -> None:
    """Runs the command."""
    run_main(main, EvaluationSettings)


if __name__ == "__main__":
    run()

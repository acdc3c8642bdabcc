"""The command `albert-tf evaluate` with an export as --model, and how near an export's answers are to its model's."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
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
from albert_tf.tasks.rows import FeatureRows
from albert_tf.tasks.tables.data_file import FileOptions
from albert_tf.training.figures import compared
from albert_tf.training.file_evaluation import Evaluated, evaluate_model, evaluated, measure
from albert_tf.training.loop.batches import evaluation_batches
from serving.lite import LiteModel
from serving.manifest import LITERT, read_manifest, versions_of
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main

# The kinds of task by those of a LiteRT version's answers, and a SavedModel's outputs by kind of task.
_KINDS = {
    "classes": "classification", "labels": "multilabel", "numbers": "regression", "tags": "tagging", "vectors": "pairs",
}  # fmt: skip
_OUTPUTS = {"regression": "value", "pairs": "embedding"}
# Rows that decide whether an export is near enough.
_MOST = 500
# What `load` takes of an export's settings.
_LOADED = ("model", "tokenizer", "lower_case", "keep_accents", "depth", "other_tokenizer")


def main(settings: EvaluationSettings) -> None:
    """Evaluates the newest version on a table; a LiteRT version of an embedder also on a suite."""
    if given := settings.given(("depth", "train_data", "eval_data")):
        raise UserError(f"{given} is not for an export; give --data_file=... or --suite=embeddings")
    place = Path(settings.model)
    version = (versions_of(place) or [place])[-1]
    folder, is_lite = place / "evaluation", (version / LITERT).is_file()
    if settings.suite:
        if not is_lite:
            raise UserError("--suite is for a model or a LiteRT version, and not for a SavedModel; give the model")
        sets = find_sets(settings.data_dir)
        output_dir = settings.output_dir or str(folder / settings.suite)
        evaluate_embeddings(settings.model, sets, output_dir, batch_size=settings.batch_size, loaded=LiteModel(version))
        return
    loaded = _source(version, settings.allow_pickle, must=not is_lite)
    model = open_version(version, loaded, settings.batch_size)
    output_dir = settings.output_dir or str(results_folder(folder, settings.data_file))
    evaluate_model(model, settings.model, FileOptions.of(settings), "", output_dir)


def _source(version: Path, allow_pickle: bool, must: bool) -> Loaded | None:
    """Returns the model that was exported; None, or UserError if it `must` be there, without it."""
    exported = read_manifest(version).get("export", {})
    try:
        check_model(exported.get("model", ""), allow_pickle)
        return load_exported(exported)
    except UserError as error:
        missing = f"'{version}' cannot be compared with the model that was exported: {error}"
        if must:
            raise UserError(missing) from error
        print(missing)
        return None


def load_exported(settings: Mapping[str, Any]) -> Loaded:
    """Loads the model that an export's settings name."""
    return load(*(settings[name] for name in _LOADED))


def open_version(version: Path, loaded: Loaded | None, batch_size: int = 64) -> Evaluated:
    """Returns a version to evaluate, with `loaded`, the model that was exported, as its reference.

    A SavedModel's rows are made by that model's tokenizer, so that it is needed.
    """
    base = evaluated(loaded, str(version), batch_size) if loaded else None
    if not (version / LITERT).is_file():
        assert base
        answer = functools.partial(_saved_answers, _signature(version), _OUTPUTS.get(base.kind, "logits"), batch_size)
        length = read_manifest(version).get("max_seq_length", base.max_seq_length)
        return base._replace(answer=answer, reference=base.answer, run=loaded.source, max_seq_length=length)
    model = LiteModel(version)
    kind, rows = model.description.answer.kind, model.rows
    if kind not in _KINDS or rows is None:
        raise UserError(
            f"'{version}' answers {kind}, or takes no texts; --data_file is for versions that give texts classes, "
            "labels, numbers, tags or vectors"
        )
    about = model.description.answer
    task = loaded.task if loaded else {"inputs": list(about.inputs or ()), "threshold": about.threshold} | model.task
    return Evaluated(
        _KINDS[kind], about.labels, task, rows.tokenizer, rows.max_seq_length, functools.partial(_lite_answers, model),
        loaded.source if loaded else "", base and base.answer,
    )  # fmt: skip


def comparison(loaded: Loaded, version: Path, path: str | os.PathLike) -> dict[str, Any]:
    """Returns how near a version's answers to some rows of a table are to those of its model; see `compared`."""
    return compared(*measure(open_version(version, loaded), FileOptions(str(path)), most=_MOST))


def _signature(version: Path) -> Callable[..., dict[str, tf.Tensor]]:
    # Registers the operations of tokenizers.
    import tensorflow_text  # noqa: F401

    signatures = tf.saved_model.load(str(version)).signatures
    return signatures["ids" if "ids" in signatures else "serving_default"]


def _saved_answers(signature: Any, output: str, batch_size: int, rows: FeatureRows) -> list[np.ndarray]:
    names, answers = signature.structured_input_signature[1], [np.empty(0)] * len(rows)
    for indices, features in evaluation_batches(rows, batch_size, int(rows.lengths.max())):
        given = features | {"lengths": features["input_mask"].sum(axis=1, dtype=np.int32)}
        found = signature(**{name: tf.constant(given[name]) for name in names})[output].numpy()
        for index, one in zip(indices, found):
            answers[index] = np.atleast_1d(one)
    return answers


def _lite_answers(model: LiteModel, rows: FeatureRows) -> Sequence[np.ndarray]:
    ids, segments = (rows.tokens[name] for name in ("input_ids", "segment_ids"))
    given = [
        {"input_ids": ids[row], "segment_ids": segments[row], "lengths": np.array(len(ids[row]), np.int32)}
        for row in range(len(rows))
    ]
    name = model.description.answer.KINDS[model.description.answer.kind]
    return [np.atleast_1d(one[name]) for one in model.run(given, (name,))]


def run() -> None:
    """Runs the command."""
    run_main(main, EvaluationSettings)

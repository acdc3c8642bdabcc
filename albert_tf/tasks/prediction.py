"""Outputs of a model for rows, in batches of rows of similar length."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.base.model import traced_functions
from albert_tf.tasks.rows import FeatureRows, padded_length
from tfrecords.base.columns import batches


def padding(rows: FeatureRows, limit: int, jit_compile: bool = False) -> Callable[[np.ndarray], dict[str, int]]:
    """Returns a function that maps a batch's row numbers to the padded length of each feature."""
    lengths = {name: rows.lengths_of(name) for name in rows.tokens}
    return lambda batch: {name: columns(found[batch], limit, jit_compile) for name, found in lengths.items()}


def evaluation_batches(rows: FeatureRows, batch_size: int, max_seq_length: int) -> Iterator[tuple[np.ndarray, dict]]:
    """Yields batches (row numbers, features), longest rows first."""
    padded = padding(rows, max_seq_length)
    for batch in batches(-rows.sizes, max_rows=batch_size) if len(rows) else ():
        yield batch, rows.batch(batch, padded(batch))[0]


def columns(lengths: np.ndarray, limit: int, jit_compile: bool = False) -> int:
    """Returns the padded length of a batch with rows of `lengths`, at most `limit`."""
    is_compiled = jit_compile or keras.backend.backend() != "tensorflow"
    return padded_length(int(lengths.max()), limit, not is_compiled and not tf.config.list_physical_devices("GPU"))


def signature(rows: FeatureRows) -> tuple:
    """Returns the tf.TensorSpecs of a batch; varying dimensions are None."""

    def spec(name: str, array: np.ndarray) -> tf.TensorSpec:
        shape = [None, *array.shape[1:]]
        if name in rows.tokens:
            shape[-1] = None
        return tf.TensorSpec(shape, array.dtype)

    features, *roles = rows.batch([0], padding(rows, 0)(np.arange(1)))
    names = [name for name in (rows.target, rows.weight) if name is not None]
    specs = {name: spec(name, array) for name, array in features.items()}
    return (specs, *(spec(name, array) for name, array in zip(names, roles)))


def predict(
    model: keras.Model, rows: FeatureRows, batch_size: int, max_seq_length: int, show_progress: bool = False
) -> list[Any]:
    """Returns the model's output for each row, an array or dict of arrays, padded as in its batch."""
    outputs: list[Any] = [None] * len(rows)
    is_tensorflow = keras.backend.backend() == "tensorflow"
    call = _graph(model, rows) if is_tensorflow else functools.partial(model, training=False)
    parts: Any = evaluation_batches(rows, batch_size, max_seq_length)
    if show_progress:
        from tfrecords.base.script import progress_bar

        parts = progress_bar(parts, total=-(-len(rows) // batch_size), unit="batch")
    for indices, features in parts:
        answers = keras.tree.map_structure(np.asarray, call(features))
        if isinstance(answers, dict):
            answers.pop("memory", None)  # It is of the encoder's steps, and no part of a row's output.
        for number, index in enumerate(indices):
            outputs[index] = keras.tree.map_structure(lambda leaf: leaf[number], answers)  # noqa: B023
    return outputs


def _graph(model: keras.Model, rows: FeatureRows) -> Callable:
    features, graphs = signature(rows)[0], traced_functions(model)
    key = tuple(sorted((name, spec) for name, spec in features.items()))
    if key not in graphs:
        graphs[key] = tf.function(
            lambda batch: model(batch, training=False), input_signature=[features], autograph=False
        )
    return graphs[key]

"""A model's outputs for rows of different lengths."""

import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from albert_tf.tasks.rows import Rows
from albert_tf.training.batches import evaluation_batches, signature

_GRAPHS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def predict(model: keras.Model, rows: Rows, batch_size: int, max_seq_length: int) -> list[Any]:
    """For each row what the model gives it, in the order of the rows: an array, or a dict of arrays.

    A row's arrays are as long as the batch was padded for; entries past its own length are of padding.
    """
    outputs: list[Any] = [None] * len(rows)
    is_jax = keras.backend.backend() == "jax"
    call = _compiled(model) if is_jax else _graph(model, rows)
    for indices, features in evaluation_batches(rows, batch_size, max_seq_length, full=is_jax):
        answers = keras.tree.map_structure(np.asarray, call(features))
        for number, index in enumerate(indices):
            outputs[index] = keras.tree.map_structure(lambda leaf: leaf[number], answers)  # noqa: B023
    return outputs


def _graph(model: keras.Model, rows: Rows) -> Callable:
    """The model's call as one graph for batches of every shape; Keras's own would be traced for several of them."""
    features = signature(rows)[0]
    graphs = _GRAPHS.setdefault(model, {})
    key = tuple(sorted((name, spec) for name, spec in features.items()))
    if key not in graphs:
        # A model that nobody else holds must not be kept by its graph.
        reference = weakref.ref(model)
        graphs[key] = tf.function(lambda batch: reference()(batch, training=False), input_signature=[features])
    return graphs[key]


def _compiled(model: keras.Model) -> Callable:
    """The model's call under JAX, compiled once for each shape, however it was itself compiled."""
    import jax

    graphs = _GRAPHS.setdefault(model, {})
    if "jax" not in graphs:
        reference = weakref.ref(model)
        graphs["jax"] = jax.jit(lambda *given: reference().stateless_call(*given, training=False)[0])
    state = [
        [variable.value for variable in group] for group in (model.trainable_variables, model.non_trainable_variables)
    ]
    return lambda batch: graphs["jax"](*state, batch)

"""Looks up rows and positions, where an index out of range is an error, or NaN, and never another row."""

from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.layers import Tensor
from tfrecords.base.errors import UserError


def plain(error: UserError) -> UserError:
    """Marks an error so that Keras passes it on as it is."""
    # Keras leaves errors with this mark alone; others it puts inside its account of every nested call.
    error._keras_call_info_injected = True  # type: ignore[attr-defined]
    return error


def rows_at(table: Tensor, indices: Tensor, name: str, first: int = 0) -> Tensor:
    """Returns the rows of a table at given indices.

    An index that the table does not have is a UserError where its value is known, and an error of TensorFlow in graphs
    that run on a CPU. XLA and GPUs raise no errors; there its row is NaN, and so are answer and loss.

    Args:
        table: [n, width].
        indices: int [...].
        name: of the indices, for the error.
        first: added to every index: how many rows of the table lie before index 0.

    Returns:
        [..., width].

    Raises:
        UserError: an index is below -first, or n - first or more.
    """
    table, size = ops.convert_to_tensor(table), ops.shape(table)[0]
    check_range(indices, size - first, name, least=-first)
    indices = ops.convert_to_tensor(indices) + first
    is_row = in_range(indices, size)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Keras's `take` counts negative indices from the end.
        rows = tf.gather(table, indices)
    else:
        rows = ops.take(table, ops.where(is_row, indices, 0), axis=0)
    return ops.where(is_row[..., None], rows, np.nan)


def gather_positions(sequence_output: Tensor, positions: Tensor, name: str = "masked_lm_positions") -> Tensor:
    """Picks vectors by their positions: [batch, sequence, hidden] and int [batch, n] give [batch, n, hidden].

    Raises:
        UserError: a position is outside its row, as for `rows_at`.
    """
    batch, length, width = ops.shape(sequence_output)
    check_range(positions, length, name)
    positions = ops.cast(positions, "int32")
    rows = positions + length * ops.arange(batch, dtype="int32")[:, None]
    # A position outside its row must not be one of the next row's.
    rows = ops.where(in_range(positions, length), rows, -1)
    return rows_at(ops.reshape(sequence_output, (-1, width)), rows, name)


def or_nan(values: Tensor, indices: Tensor, size: Any) -> Tensor:
    """Returns values, [...] as the indices they were looked up by, times NaN where an index is not below `size`."""
    return values * ops.cast(ops.where(in_range(indices, size), 1.0, np.nan), values.dtype)


def in_range(indices: Tensor, size: Any) -> Tensor:
    """Returns whether each index is from 0 to size - 1: bool [...]."""
    return ops.logical_and(indices >= 0, indices < size)


def check_range(indices: Any, most: Any, name: str, least: int = 0) -> None:
    """Raises UserError where an index is known, and is not from `least` to most - 1."""
    values = known(indices)
    if values is None or not isinstance(most, int) or not values.size:
        return
    wrong = (values < least) | (values >= most)
    if wrong.any():
        place = ", ".join(map(str, np.argwhere(wrong)[0]))
        raise plain(UserError(f"{name}: {values[wrong][0]} at [{place}] is not from {least} to {most - 1}"))


def known(values: Any) -> np.ndarray | None:
    """Returns what an array or an eager tensor holds; None of anything else."""
    if isinstance(values, np.ndarray):
        return values
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return values.numpy() if isinstance(values, tf.__internal__.EagerTensor) else None
    if keras.backend.backend() == "jax":
        import jax

        is_known = isinstance(values, jax.Array) and not isinstance(values, jax.core.Tracer)
        return np.asarray(values) if is_known else None
    return None

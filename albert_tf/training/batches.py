"""Batches of rows: sentences of like length together, so that short ones do not pay for the longest.

    rows -> shuffled -> sorted by length within pools of batches -> batches in random order -> padded

A training batch is a function of (seed, its number), so training goes on after any batch as if it had never stopped.
"""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from albert_tf.tasks.rows import Rows, padded_length
from tfrecords.randomness import derive

# Rows of this many batches are sorted together: enough for batches of nearly one length, and few enough that the
# composition of a batch stays random.
POOL = 64


def epoch_order(lengths: np.ndarray, batch_size: int, seed: int, epoch: int, bucketed: bool = True) -> np.ndarray:
    """Row numbers of each batch of an epoch, int64 [batches, batch_size].

    Rows that do not fill a batch are left out, other ones each epoch; fewer rows than a batch make one smaller batch.
    """
    random = np.random.default_rng(int(derive(seed, epoch)))
    order = random.permutation(len(lengths))
    size = min(batch_size, len(order))
    batches = len(order) // size
    order = order[: batches * size]
    if not bucketed:
        return order.reshape(batches, size)
    pools = [order[start : start + POOL * size] for start in range(0, len(order), POOL * size)]
    order = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    return random.permutation(order.reshape(batches, size))


def batches_per_epoch(rows: Rows, batch_size: int) -> int:
    return max(1, len(rows) // batch_size)


def training_batches(
    rows: Rows,
    batch_size: int,
    max_seq_length: int,
    seed: int,
    first_batch: int = 0,
    bucketed: bool = True,
    parts: int = 1,
) -> tf.data.Dataset:
    """Batches for ever, from number `first_batch` on; see `Rows.batch` for an element.

    Args:
        bucketed: rows of like length together, each batch padded for its longest; otherwise `max_seq_length` columns.
        parts: elements that a batch comes in, of as many rows and columns each.
    """
    lengths = rows.lengths

    def generate() -> Iterator[tuple]:
        epoch, skip = divmod(first_batch, batches_per_epoch(rows, batch_size))
        while True:
            for batch in epoch_order(lengths, batch_size, seed, epoch, bucketed)[skip:]:
                length = padded_length(int(lengths[batch].max()), max_seq_length) if bucketed else max_seq_length
                for part in np.split(batch, parts):
                    yield rows.batch(part, length)
            epoch, skip = epoch + 1, 0

    dataset = tf.data.Dataset.from_generator(
        generate, output_signature=signature(rows, None if bucketed else max_seq_length)
    )
    return dataset.prefetch(4)


def evaluation_batches(
    rows: Rows, batch_size: int, max_seq_length: int, full: bool = False
) -> Iterator[tuple[np.ndarray, dict]]:
    """(row numbers, features) of all rows once, the longest first.

    full: a smaller batch after whole ones is filled up with its last row, so that no other shape need be compiled.
    """
    lengths = rows.lengths
    order = np.argsort(-lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        filled = np.pad(batch, (0, batch_size - len(batch)), mode="edge") if full and start else batch
        yield batch, rows.batch(filled, padded_length(int(lengths[batch].max()), max_seq_length))[0]


def signature(rows: Rows, length: int | None = None) -> tuple:
    """The tf.TensorSpecs of a batch, unknown where a dimension differs from batch to batch: one graph takes them all.

    length: of all batches, where it is one.
    """

    def spec(name: str, array: np.ndarray) -> tf.TensorSpec:
        shape = [None, *array.shape[1:]]
        if name in rows.tokens:
            shape[-1] = length
        return tf.TensorSpec(shape, array.dtype)

    features, *roles = rows.batch([0], int(rows.lengths[0]))
    names = [name for name in (rows.target, rows.weight) if name is not None]
    specs = {name: spec(name, array) for name, array in features.items()}
    return (specs, *(spec(name, array) for name, array in zip(names, roles)))

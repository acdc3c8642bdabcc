"""Batches of rows for training.

An epoch sorts pools of shuffled rows by length, cuts them into batches, and shuffles the batches. Batch n depends only
on the seed and n, so training can resume at any batch.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.tasks.prediction import padding, signature
from albert_tf.tasks.rows import FeatureRows
from tfrecords.base.errors import UserError
from tfrecords.examples.randomness import derive

# Rows of this many batches are sorted together: enough for batches of nearly one length, and few enough that the
# composition of a batch stays random.
POOL = 64


def epoch_order(
    lengths: np.ndarray, batch_size: int, seed: int, epoch: int, keys: np.ndarray | None = None
) -> np.ndarray:
    """Returns the row numbers of each batch of an epoch, int64 [batches, batch_size].

    Rows left over after the last full batch, which vary by epoch, are dropped; too few rows make one smaller batch.
    Rows with a common key in `keys` [rows, keys] are in different batches.
    """
    random = np.random.default_rng(int(derive(seed, epoch)))
    order = random.permutation(len(lengths))
    size = min(batch_size, len(order))
    order = order if keys is not None else order[: len(order) // size * size]
    pools = [order[start : start + POOL * size] for start in range(0, len(order), POOL * size)]
    order = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    return random.permutation(order.reshape(-1, size) if keys is None else _without_repeats(order, keys, size))


def _without_repeats(order: np.ndarray, keys: np.ndarray, size: int) -> np.ndarray:
    rows, waiting, batches = iter(order.tolist()), list[int](), list[list[int]]()
    texts = keys.tolist()
    while True:
        batch, seen, later = list[int](), set[int](), list[int]()
        candidates = itertools.chain(waiting, rows)
        for row in candidates:
            if seen.isdisjoint(texts[row]):
                batch.append(row)
                seen.update(texts[row])
            else:
                later.append(row)
            # So many rows without enough different texts: the rest will hardly be better.
            if len(batch) == size or len(later) > POOL * size:
                break
        if len(batch) < size:
            return np.array(batches, np.int64).reshape(-1, size)
        batches.append(batch)
        waiting = later + waiting[len(batch) + len(later) :]


def batches_per_epoch(rows: FeatureRows, batch_size: int) -> int:
    """Returns the number of batches of an epoch; raises UserError if too many rows have a key in common."""
    if rows.keys is None:
        return max(1, len(rows) // batch_size)
    order = epoch_order(rows.sizes, batch_size, 0, 0, keys=rows.keys)
    if len(order):
        if (left := len(rows) - order.size) >= order.shape[1]:
            logging.warning(
                "%s of %s rows are in no batch of an epoch, since their texts are in too many rows; a lower "
                "--train_batch_size takes more of them", f"{left:,}", f"{len(rows):,}",
            )  # fmt: skip
        return len(order)
    raise UserError(
        f"no {min(batch_size, len(rows))} of {len(rows)} rows have different texts, as a batch needs; give rows with "
        "more different texts, or a lower --train_batch_size"
    )


def training_batches(
    rows: FeatureRows,
    batch_size: int,
    max_seq_length: int,
    seed: int,
    first_batch: int = 0,
    parts: int = 1,
    workers: int = 1,
    worker: int = 0,
    jit_compile: bool = False,
) -> tf.data.Dataset:
    """Returns an endless dataset of batches, starting with batch number `first_batch`.

    `batch_size` counts rows over all workers; a worker gets its rows as `parts` elements of one size. A batch
    has rows of similar length, padded to the longest.
    """
    sizes, padded = rows.sizes, padding(rows, max_seq_length, jit_compile)

    def generate() -> Iterator[tuple]:
        skip = first_batch
        for epoch in itertools.count():
            batches = epoch_order(sizes, batch_size, seed, epoch, rows.keys)
            for batch in batches[skip:]:
                for part in np.split(batch, parts * workers)[worker::workers]:
                    yield rows.batch(part, padded(batch))
            skip = max(0, skip - len(batches))

    return tf.data.Dataset.from_generator(generate, output_signature=signature(rows)).prefetch(4)


def reader(rows: FeatureRows, settings: Any, first_batch: int) -> Callable:
    """Returns a function (parts, workers, worker): `training_batches` with the settings' values."""

    def read(parts: int, workers: int, worker: int) -> tf.data.Dataset:
        return training_batches(
            rows,
            settings.train_batch_size,
            settings.max_seq_length,
            settings.seed,
            first_batch=first_batch,
            parts=parts * settings.gradient_accumulation_steps,
            workers=workers,
            worker=worker,
            jit_compile=settings.jit_compile,
        )

    return read

"""Reads permutation records as batches in order: row i of a batch continues row i of the previous batch.

An epoch's files are shuffled, concatenated and cut into equal lanes. At each step a lane yields one row of each stream
of its current file. Training can resume after any batch.
"""

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrecords.base.errors import UserError
from tfrecords.examples.randomness import derive
from tfrecords.reader import map_batches, open_records
from tfrecords.reading.lanes import stretches_of

# Purposes of keys; `reader` and `lanes` have others.
_FILES, _ORDERS = 6, 7


def read_permutations(
    patterns: str | os.PathLike | Iterable[str],
    batch_size: int,
    training: bool,
    seed: int = 0,
    skip_batches: int = 0,
    parts: int = 1,
    num_workers: int = 1,
    worker: int = 0,
    expected: Mapping[str, Any] | None = None,
) -> tf.data.Dataset:
    """Reads permutation records as batches of rows with their attention masks.

    Features: input_ids (true tokens), segment_ids: int32 [batch, max_seq_length]; is_reversed: int32 [batch], 1 for
    backward text; perm_mask: bool [batch, max_seq_length, max_seq_length], True where token i may not attend to token
    j; masked_lm_positions, masked_lm_ids: int32 and masked_lm_weights: float32 [batch, max_predictions_per_seq], the
    targets in text order, then padding.

    batch_size: rows of a step over all workers and parts, a multiple of the records' `streams`; the
    second half of every element is backward text. training: repeats forever, in a new file order each epoch; otherwise
    one pass without the last steps that do not fill all lanes. parts: dataset elements of each worker per step. Other
    arguments are as in `reader.read_examples`.

    Raises UserError like `read_examples`, and for records of another kind or arguments that do not fit.
    """
    paths, manifest, counts = open_records(patterns, training, expected)
    if manifest.get("objective") != "permutation":
        raise UserError(
            f"the records in '{paths[0].parent}' are of masked words; build others with "
            "python -m tfrecords.create_pretraining_data --objective=permutation"
        )
    plan = _Plan(paths, counts, manifest, batch_size, training, seed)
    share = _Share(manifest, batch_size, parts, num_workers, worker)
    steps = plan.steps(skip_batches).enumerate(start=skip_batches).map(share).unbatch()
    length = tf.data.INFINITE_CARDINALITY if training else max(0, plan.length - skip_batches) * parts
    return map_batches(steps, _PermutationParser(manifest, seed), length)


class _Plan:
    def __init__(
        self,
        paths: list[Path],
        counts: list[int],
        manifest: dict[str, Any],
        batch_size: int,
        training: bool,
        seed: int,
    ):
        self._streams, self._training, self._seed = manifest["streams"], training, seed
        self._names = [str(path) for path in paths]
        # Steps of every file: its rows are ordered by step, a row of each stream.
        self._counts = np.array(counts, np.int64) // self._streams
        self._lanes, rest = divmod(batch_size, self._streams)
        if rest or not self._lanes:
            raise UserError(
                f"a batch of {batch_size} rows must be a multiple of the {self._streams} streams that the records "
                "go on in; choose another batch size, or build them anew with other --streams"
            )
        self.length = int(self._counts.sum()) // self._lanes
        if not self.length:
            raise UserError(
                f"the {'training' if training else 'held-out'} records have {sum(counts)} rows, too few for a batch of "
                f"{batch_size}; lower the batch size or build more"
            )

    def steps(self, skip: int) -> tf.data.Dataset:
        names = tf.constant(self._names)
        first_epoch, into_epoch = divmod(skip, self.length) if self._training else (0, skip)

        @tf.autograph.experimental.do_not_convert
        def of_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
            splits, stretches = tf.numpy_function(
                lambda number: self._stretches(number, into_epoch if number == first_epoch else 0),
                [epoch], [tf.int64] * 2,
            )  # fmt: skip
            splits.set_shape([None])
            stretches.set_shape([None, 3])

            def of_lane(lane: tf.Tensor) -> tf.data.Dataset:
                mine = tf.data.Dataset.from_tensor_slices(stretches[splits[lane] : splits[lane + 1]])
                rows = mine.flat_map(
                    lambda place: tf.data.TFRecordDataset(names[place[0]]).skip(place[1]).take(place[2])
                )
                return rows.batch(self._streams, drop_remainder=True)

            lanes = tf.data.Dataset.range(self._lanes).interleave(
                of_lane, cycle_length=self._lanes, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
            )
            return lanes.batch(self._lanes, drop_remainder=True)

        last = np.iinfo(np.int64).max if self._training else 1
        return tf.data.Dataset.range(first_epoch, last).flat_map(of_epoch)

    def _stretches(self, epoch: int, skip: int) -> tuple[np.ndarray, np.ndarray]:
        files = np.arange(len(self._names))
        if self._training:
            files = np.argsort(derive(self._seed, _FILES, epoch, files))
        splits = np.concatenate([[0], np.cumsum(self._counts[files])])
        lanes = [
            stretches_of(files, splits, lane * self.length + min(skip, self.length), (lane + 1) * self.length)
            for lane in range(self._lanes)
        ]
        rows = np.array([place for lane in lanes for place in lane], np.int64).reshape(-1, 3)
        return np.cumsum([0, *map(len, lanes)]), rows * [1, self._streams, self._streams]


class _Share:
    def __init__(self, manifest: dict[str, Any], batch_size: int, parts: int, num_workers: int, worker: int):
        shares = parts * num_workers
        if batch_size % (2 * shares):
            raise UserError(
                f"{shares} devices or parts of a step cannot share a batch of {batch_size} rows equally, the "
                "forward and the backward ones each"
            )
        lanes, streams = batch_size // manifest["streams"], manifest["streams"]
        by_direction = np.arange(batch_size).reshape(lanes, 2, streams // 2).swapaxes(0, 1)
        rows = np.concatenate(by_direction.reshape(2, shares, -1), axis=1)
        self._rows, self._batch_size = rows[worker::num_workers], batch_size
        self._backwards = (self._rows % streams >= streams // 2).astype(np.int32)

    def __call__(self, number: tf.Tensor, records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        of_rows = tf.gather(tf.reshape(records, [-1]), self._rows)
        return number * self._batch_size + self._rows, of_rows, self._backwards


class _PermutationParser:
    def __init__(self, manifest: dict[str, Any], seed: int):
        self._sequence, self._reuse = manifest["max_seq_length"], manifest["reuse_length"]
        self._predictions, self._seed = manifest["max_predictions_per_seq"], seed
        self._special = manifest["cls_id"], manifest["sep_id"]
        self._parts = [length for length in (self._reuse, self._sequence - self._reuse) if length]
        # So many neighbouring tokens are permuted together.
        self._perm_size = math.gcd(*self._parts)

    def __call__(self, positions: tf.Tensor, records: tf.Tensor, is_reversed: tf.Tensor) -> dict[str, tf.Tensor]:
        names = ("input", "is_masked", "seg_id")
        whole = tf.io.FixedLenFeature([self._sequence], tf.int64)
        parsed = tf.io.parse_example(records, dict.fromkeys(names, whole))
        input_ids, is_masked, segment_ids = (tf.cast(parsed[name], tf.int32) for name in names)
        orders = tf.numpy_function(self._orders, [positions], tf.int32)
        orders = tf.ensure_shape(orders, input_ids.shape)
        perm_mask, is_target = permutation_masks(input_ids, is_masked > 0, orders, self._reuse, self._special)
        # Ascending, then the entries that are no positions.
        places = tf.sort(tf.where(is_target, tf.range(self._sequence), self._sequence))[:, : self._predictions]
        present = places < self._sequence
        places = tf.where(present, places, 0)
        return {
            "input_ids": input_ids,
            "segment_ids": segment_ids,
            "is_reversed": is_reversed,
            "perm_mask": perm_mask,
            "masked_lm_positions": places,
            "masked_lm_ids": tf.where(present, tf.gather(input_ids, places, batch_dims=1), 0),
            "masked_lm_weights": tf.cast(present, tf.float32),
        }

    def _orders(self, positions: np.ndarray) -> np.ndarray:
        random = derive(
            self._seed,
            _ORDERS,
            positions[:, None, None],
            np.arange(len(self._parts))[:, None],
            np.arange(self._perm_size),
        )
        permutations = np.argsort(random, axis=-1)
        orders = [
            permutations[:, part, None] + np.arange(0, length, self._perm_size)[:, None]
            for part, length in enumerate(self._parts)
        ]
        return np.concatenate([order.reshape(len(positions), -1) for order in orders], axis=1).astype(np.int32)


def permutation_masks(
    input_ids: tf.Tensor, is_masked: tf.Tensor, orders: tf.Tensor, reuse_length: int, special: tuple[int, ...]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns True where token i may not attend to j, bool [batch, sequence, sequence], and which tokens are targets.

    Tokens of a part attend to its unmasked tokens. A masked token is a target and also attends to masked tokens before
    it in the prediction order. [CLS] and [SEP] attend to themselves and are no targets. The later part attends to all
    of the reused part, but not the reverse. Source: zihangdai/xlnet data_utils.py:579-698.

    orders: int32 [batch, sequence], each token's rank in its part, from 0.
    """
    functional = tf.reduce_any(input_ids[..., None] == tf.constant(special), axis=-1)
    hidden = is_masked | functional
    targets = is_masked & ~functional
    known_at = tf.where(hidden, orders, -1)
    knows_until = tf.where(targets, known_at, known_at + 1)
    unseen = knows_until[:, :, None] <= known_at[:, None, :]
    is_behind = tf.range(tf.shape(input_ids)[1]) >= reuse_length
    same_part = is_behind[:, None] == is_behind[None, :]
    return tf.where(same_part, unseen, is_behind[None, :]), targets

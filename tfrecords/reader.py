"""Records to batches of tensors: the tf.data pipeline for training and evaluation.

    files -> records (-> packed rows) -> shuffled in windows -> skip, shard -> batches -> parsed (-> masked) features

The order, and the masks of dynamic records, are functions of (seed, position), the position being the number of the
record counted from the start of training over all epochs and workers. So training goes on after `skip_batches` batches
exactly as if it had never stopped, whatever else in the program draws random numbers.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrecords.errors import UserError
from tfrecords.foreign import describe_foreign
from tfrecords.graph_masking import derive
from tfrecords.manifest import MANIFEST, PARTS, check_files, find_records, read_manifest
from tfrecords.packing import pack_records
from tfrecords.parsing import Parser

__all__ = ["read_examples", "read_manifest"]

_FILES_AT_ONCE = 16
_ORDER, _WINDOW = 1, 2


def read_examples(
    patterns: str | os.PathLike | Iterable[str],
    batch_size: int,
    training: bool,
    seed: int = 0,
    skip_batches: int = 0,
    shuffle_window: int = 16384,
    examples_per_row: int = 1,
    num_workers: int = 1,
    worker: int = 0,
    expected: Mapping[str, Any] | None = None,
) -> tf.data.Dataset:
    """Batches of examples by the official names.

    input_ids, input_mask, segment_ids: int32 [batch, max_seq_length]; masked_lm_positions, masked_lm_ids: int32 and
    masked_lm_weights: float32 [batch, max_predictions_per_seq]; next_sentence_labels: int32 [batch, 1].

    training: shuffled (files, then windows of `shuffle_window` records), repeated for ever, every batch full, dynamic
    masks anew each epoch. Otherwise one pass in order, the last batch as large as it is, dynamic masks fixed by `seed`.
    patterns: comma-separated globs or folders; of a folder's files those that its manifest lists as training files, or
    as evaluation files. batch_size: of this worker. num_workers, worker: each of several training processes gets its
    share of every stretch of batch_size * num_workers records. skip_batches: how many of its batches this worker had
    before. examples_per_row above 1 packs up to so many examples into a row (see `packing` for the features).
    expected: entries that the manifest must have, such as max_seq_length or tokenizer_sha256.

    Raises UserError when files are missing, cut off, of different builds, or not as expected.
    """
    if min(batch_size, shuffle_window, examples_per_row) < 1 or not 0 <= worker < num_workers or skip_batches < 0:
        raise UserError(
            f"batch_size {batch_size}, shuffle_window {shuffle_window}, examples_per_row {examples_per_row}, "
            f"worker {worker} of {num_workers}, skip_batches {skip_batches}: the first three must be above 0, "
            "worker below num_workers, skip_batches not below 0"
        )
    split = "train" if training else "eval"
    paths = find_records(patterns, split)
    manifest, total = describe_records(paths, split)
    _check_expected(manifest, expected or {}, paths[0].parent)
    if examples_per_row > 1 and manifest.get("pad_id", 0) != 0:
        raise UserError(f"packing needs [PAD] to be id 0; '{paths[0].parent}' has {manifest['pad_id']}: do not pack it")

    def read(names: tf.Tensor) -> tf.data.Dataset:
        return _read_files(names, manifest["max_seq_length"], examples_per_row)

    names = tf.constant([str(path) for path in paths])
    skip = skip_batches * batch_size * num_workers
    if training:
        total = total if examples_per_row == 1 or not skip else int(read(names).reduce(np.int64(0), lambda n, _: n + 1))
        rows = _training_rows(read, names, total, seed, shuffle_window, skip)
    else:
        rows = read(names).skip(skip)
    rows = rows.enumerate(start=skip)
    rows = rows.shard(num_workers, worker) if num_workers > 1 else rows
    batches = rows.batch(batch_size, drop_remainder=training)
    parse = Parser(manifest, paths[0].parent, seed, examples_per_row)
    batches = batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    if training:
        batches = batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    elif examples_per_row == 1:
        # Keras warns of data that ran out unless it knows the number of batches.
        of_worker = len(range(skip + worker, total, num_workers))
        batches = batches.apply(tf.data.experimental.assert_cardinality(-(-of_worker // batch_size)))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.with_options(options).prefetch(tf.data.AUTOTUNE)


def describe_records(paths: list[Path], split: str) -> tuple[dict[str, Any], int]:
    """The manifest of the files and the number of their examples, after a check that the files are as it says.

    Files with no manifest beside them, and none on its way, are taken as another program's.
    """
    if any((path.parent / name).exists() for path in paths for name in (MANIFEST, PARTS)):
        return read_manifest([str(path) for path in paths]), check_files(paths, split)
    manifest = describe_foreign(paths)
    return manifest, manifest["splits"]["train"]["examples"]


def _check_expected(manifest: dict[str, Any], expected: Mapping[str, Any], folder: Path) -> None:
    for key, value in expected.items():
        if manifest.get(key) != value:
            raise UserError(f"the records in '{folder}' have {key} {manifest.get(key)!r}, needed is {value!r}")


def _read_files(names: tf.Tensor, sequence: int, examples_per_row: int) -> tf.data.Dataset:
    """Rows of the files, in turns from several at once, always in the same order: string [], or [examples_per_row]."""

    def read(name: tf.Tensor) -> tf.data.Dataset:
        gzipped = tf.strings.regex_full_match(name, r".*\.gz")
        records = tf.data.TFRecordDataset(name, compression_type=tf.where(gzipped, "GZIP", ""))
        if examples_per_row == 1:
            return records
        return pack_records(records, sequence, examples_per_row)

    return tf.data.Dataset.from_tensor_slices(names).interleave(
        read, cycle_length=_FILES_AT_ONCE, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _training_rows(
    read: Callable[[tf.Tensor], tf.data.Dataset], names: tf.Tensor, total: int, seed: int, window: int, skip: int
) -> tf.data.Dataset:
    """The rows of all epochs, from number `skip` on. total: rows in an epoch."""
    first_epoch, into_epoch = divmod(skip, total)

    def epoch_rows(epoch: tf.Tensor) -> tf.data.Dataset:
        shuffled = tf.random.experimental.stateless_shuffle(names, _shuffle_seed(seed, _ORDER, epoch, 0))

        def shuffle(number: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
            return tf.random.experimental.stateless_shuffle(rows, _shuffle_seed(seed, _WINDOW, epoch, number))

        rows = read(shuffled).batch(window).enumerate().map(shuffle).unbatch()
        return rows.skip(tf.where(epoch == first_epoch, tf.constant(into_epoch, tf.int64), 0))

    return tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max).flat_map(epoch_rows)


def _shuffle_seed(*parts: Any) -> tf.Tensor:
    return tf.bitcast(derive(*parts), tf.int32)

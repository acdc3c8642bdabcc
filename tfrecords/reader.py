"""Records to batches of tensors: the tf.data pipeline for training and evaluation.

    files --interleave--> records --shuffle in windows--> skip, shard --> batch --> parse --> (mask) --> features

The order, and the masks of dynamic records, are functions of (seed, position), the position being the number of the
record counted from the start of training over all epochs and workers. So training goes on after `skip_batches` batches
exactly as if it had never stopped, whatever else in the program draws random numbers.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrecords.errors import UserError
from tfrecords.graph_masking import derive, mask_batch
from tfrecords.manifest import find_records, read_manifest
from tfrecords.masking import MaskingRule, MaskingVocabulary
from tfrecords.tokenizer import load_tokenizer

__all__ = ["read_examples", "read_manifest"]

_FILES_AT_ONCE = 16
_ORDER, _WINDOW, _MASKS = 1, 2, 3


def read_examples(
    patterns: str | os.PathLike | Iterable[str],
    batch_size: int,
    training: bool,
    seed: int = 0,
    skip_batches: int = 0,
    shuffle_window: int = 16384,
    num_workers: int = 1,
    worker: int = 0,
) -> tf.data.Dataset:
    """Batches of examples by the official names.

    input_ids, input_mask, segment_ids: int32 [batch, max_seq_length]; masked_lm_positions, masked_lm_ids: int32 and
    masked_lm_weights: float32 [batch, max_predictions_per_seq]; next_sentence_labels: int32 [batch, 1].

    training: shuffled (files, then windows of `shuffle_window` records), repeated for ever, every batch full, dynamic
    masks anew each epoch. Otherwise one pass in order, the last batch as large as it is, dynamic masks fixed by `seed`.
    batch_size: of this worker. num_workers, worker: each of several training processes gets its share of every
    stretch of batch_size * num_workers records. skip_batches: how many of this worker's batches were read before.

    Raises UserError when files are missing, cut off or of different builds.
    """
    paths = find_records(patterns, "train" if training else "eval")
    manifest = read_manifest([str(path) for path in paths])
    total = _check_files(paths, manifest)
    skip = skip_batches * batch_size * num_workers
    if training:
        records = _training_records(paths, total, seed, shuffle_window, skip)
    else:
        records = _read_files([str(path) for path in paths]).skip(skip)
    records = records.enumerate(start=skip).shard(num_workers, worker)
    batches = records.batch(batch_size, drop_remainder=training)
    parse = _Parser(manifest, paths[0].parent, seed)
    batches = batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.with_options(options).prefetch(tf.data.AUTOTUNE)


def _check_files(paths: list[Path], manifest: dict[str, Any]) -> int:
    """Compares sizes with the manifest; returns the number of examples in the files."""
    listed = {file["name"]: file for split in manifest["splits"].values() for file in split["files"]}
    for path in paths:
        expected = listed.get(path.name)
        if expected is None:
            raise UserError(f"'{path}' is not in the manifest beside it; read another build from its own folder")
        if path.stat().st_size != expected["bytes"]:
            raise UserError(
                f"'{path}' has {path.stat().st_size} bytes, its manifest says {expected['bytes']}: it is cut off or "
                "changed; copy it again or build it anew"
            )
    return sum(listed[path.name]["examples"] for path in paths)


def _read_files(names: list[str] | tf.Tensor) -> tf.data.Dataset:
    """Records of the files, in turns from several at once, always in the same order."""

    def read(name: tf.Tensor) -> tf.data.Dataset:
        gzipped = tf.strings.regex_full_match(name, r".*\.gz")
        return tf.data.TFRecordDataset(name, compression_type=tf.where(gzipped, "GZIP", ""))

    return tf.data.Dataset.from_tensor_slices(names).interleave(
        read, cycle_length=_FILES_AT_ONCE, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )


def _training_records(paths: list[Path], total: int, seed: int, window: int, skip: int) -> tf.data.Dataset:
    """All epochs from record number `skip` on."""
    first_epoch, into_epoch = divmod(skip, total)
    names = tf.constant([str(path) for path in paths])

    def epoch_records(epoch: tf.Tensor) -> tf.data.Dataset:
        shuffled = tf.random.experimental.stateless_shuffle(names, _shuffle_seed(seed, _ORDER, epoch, 0))

        def shuffle(number: tf.Tensor, records: tf.Tensor) -> tf.Tensor:
            return tf.random.experimental.stateless_shuffle(records, _shuffle_seed(seed, _WINDOW, epoch, number))

        records = _read_files(shuffled).batch(window).enumerate().map(shuffle).unbatch()
        return records.skip(tf.where(epoch == first_epoch, tf.constant(into_epoch, tf.int64), 0))

    epochs = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max)
    return epochs.flat_map(epoch_records)


def _shuffle_seed(*parts: Any) -> tf.Tensor:
    return tf.bitcast(derive(*parts), tf.int32)


class _Parser:
    """A batch of (position int64 [batch], record string [batch]) to features."""

    def __init__(self, manifest: dict[str, Any], folder: Path, seed: int):
        self._sequence = manifest["max_seq_length"]
        self._predictions = manifest["max_predictions_per_seq"]
        self._seed = seed
        self._dynamic = manifest["masking"] == "dynamic"
        if self._dynamic:
            self._rule = MaskingRule(
                self._predictions, manifest["masked_lm_prob"], manifest["max_ngram"], manifest["whole_words"]
            )
            self._vocabulary = MaskingVocabulary.of(load_tokenizer(folder))

    def __call__(self, positions: tf.Tensor, records: tf.Tensor) -> dict[str, tf.Tensor]:
        features = self._parse_dynamic(positions, records) if self._dynamic else self._parse_static(records)
        return {name: self._typed(name, value, records.shape[0]) for name, value in features.items()}

    def _typed(self, name: str, value: tf.Tensor, batch: int | None) -> tf.Tensor:
        width = {"next_sentence_labels": 1}.get(name, self._predictions if name.startswith("masked") else self._sequence)
        value = tf.ensure_shape(value, [batch, width])
        return value if value.dtype == tf.float32 else tf.cast(value, tf.int32)

    def _parse_static(self, records: tf.Tensor) -> dict[str, tf.Tensor]:
        sequence, predictions = [self._sequence], [self._predictions]
        return tf.io.parse_example(
            records,
            {
                "input_ids": tf.io.FixedLenFeature(sequence, tf.int64),
                "input_mask": tf.io.FixedLenFeature(sequence, tf.int64),
                "segment_ids": tf.io.FixedLenFeature(sequence, tf.int64),
                "masked_lm_positions": tf.io.FixedLenFeature(predictions, tf.int64),
                "masked_lm_ids": tf.io.FixedLenFeature(predictions, tf.int64),
                "masked_lm_weights": tf.io.FixedLenFeature(predictions, tf.float32),
                "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
            },
        )

    def _parse_dynamic(self, positions: tf.Tensor, records: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(
            records,
            {name: tf.io.RaggedFeature(tf.int64) for name in ("input_ids", "segment_ids", "token_boundary")}
            | {"next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64)},
        )
        lengths = tf.cast(parsed["input_ids"].row_lengths(), tf.int32)

        def pad(name: str) -> tf.Tensor:
            return tf.cast(parsed[name].to_tensor(shape=[None, self._sequence]), tf.int32)

        masked = mask_batch(
            pad("input_ids"),
            lengths,
            pad("token_boundary") == 1,
            derive(self._seed, _MASKS, positions),
            self._rule,
            self._vocabulary,
        )
        return masked | {
            "input_mask": tf.cast(tf.sequence_mask(lengths, self._sequence), tf.int32),
            "segment_ids": pad("segment_ids"),
            "next_sentence_labels": parsed["next_sentence_labels"],
        }

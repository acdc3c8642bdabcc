"""The tf.data pipeline from records to batches of tensors.

    files -> records -> shuffled in windows -> skip, shard -> batches -> parsed (-> masked, -> packed) features

Order and dynamic masks depend on (seed, position) only, so training can resume after `skip_batches` batches.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfrecords.base.errors import UserError
from tfrecords.examples.masking import MaskingRule, MaskingVocabulary, mask_examples
from tfrecords.examples.packing import pack_batch
from tfrecords.examples.randomness import derive
from tfrecords.reading.lanes import Lanes, number_of_lanes
from tfrecords.reading.manifest import check_files, find_records, read_manifest
from tfrecords.tokenizers.loading import load_tokenizer

__all__ = ["read_examples", "read_manifest"]

# Files read in parallel for evaluation, and lanes for training.
_FILES_AT_ONCE, _LANES = 16, 64
# The purpose of keys; `lanes` has more.
_MASKS = 3


def read_examples(
    patterns: str | os.PathLike | Iterable[str],
    batch_size: int,
    training: bool,
    seed: int = 0,
    skip_batches: int = 0,
    shuffle_window: int = 16384,
    examples_per_row: int = 1,
    row_multiple: int = 1,
    num_workers: int = 1,
    worker: int = 0,
    expected: Mapping[str, Any] | None = None,
    files_at_once: int = 0,
) -> tf.data.Dataset:
    """Reads records as batches of examples, with google-research/albert's feature names.

    input_ids, input_mask, segment_ids: int32 [batch, max_seq_length]; masked_lm_positions, masked_lm_ids: int32 and
    masked_lm_weights: float32 [batch, max_predictions_per_seq]; next_sentence_labels: int32 [batch, 1].

    Args:
        patterns: comma-separated globs or folders; of a folder, the files that its manifest lists for training or
            evaluation.
        batch_size: per worker.
        training: shuffled, repeated in full batches, with new dynamic masks each epoch; otherwise one pass in order
            with masks fixed by `seed`, and a last batch that may be smaller.
        seed: of order and dynamic masks.
        skip_batches: batches that this worker has read already.
        shuffle_window: number of records shuffled together.
        examples_per_row: maximal number of examples packed into a row (see `packing`).
        row_multiple: pads packed batches to a multiple of this number of rows.
        num_workers: workers that share the records.
        worker: this worker's number, from 0.
        expected: required manifest entries, such as max_seq_length.
        files_at_once: files read in parallel for training; 0 means 64. If it is a multiple of
            `num_workers`, a worker reads only its share of the files.

    Raises:
        UserError: files are missing, cut off, of different builds, or not as expected.
    """
    paths, manifest, counts = open_records(patterns, training, expected)
    total = sum(counts)
    if manifest.get("objective") == "permutation":
        raise UserError(
            f"the records in '{paths[0].parent}' are for --objective=permutation; read_permutations reads them"
        )

    skip = skip_batches * batch_size * num_workers
    names = [str(path) for path in paths]
    if training:
        lanes = number_of_lanes(len(paths), files_at_once or _LANES)
        order = Lanes(tf.data.TFRecordDataset, names, counts, lanes, shuffle_window, seed)
        if lanes % num_workers:
            rows = order.rows(skip, 1, 0).enumerate(start=skip).shard(num_workers, worker)
        else:
            rows = order.rows(skip, num_workers, worker).enumerate()
            rows = rows.map(lambda place, row: (place * num_workers + worker + skip, row))
    else:
        rows = tf.data.Dataset.from_tensor_slices(names).interleave(
            tf.data.TFRecordDataset,
            cycle_length=_FILES_AT_ONCE,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        rows = rows.skip(skip).enumerate(start=skip).shard(num_workers, worker)
    batches = rows.batch(batch_size, drop_remainder=training)
    parse = _Parser(manifest, paths[0].parent, seed, examples_per_row, row_multiple)
    of_worker = len(range(skip + worker, total, num_workers))
    return map_batches(batches, parse, tf.data.INFINITE_CARDINALITY if training else -(-of_worker // batch_size))


def map_batches(batches: tf.data.Dataset, parse: Callable, length: int) -> tf.data.Dataset:
    """Parses batches in parallel, and prefetches them; `length` is their total number."""
    # As in reading/lanes.py: there are no Python loops to be found.
    parse = tf.autograph.experimental.do_not_convert(parse)
    batches = batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    # Keras warns of data that ran out unless it knows the number of batches.
    batches = batches.apply(tf.data.experimental.assert_cardinality(length))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.with_options(options).prefetch(tf.data.AUTOTUNE)


def open_records(
    patterns: str | os.PathLike | Iterable[str], training: bool, expected: Mapping[str, Any] | None
) -> tuple[list[Path], dict[str, Any], list[int]]:
    """Finds the files of a split; returns them, their manifest and the number of examples in each.

    Raises UserError if the manifest's entries differ from those in `expected`.
    """
    split = "train" if training else "eval"
    paths = find_records(patterns, split)
    manifest, counts = read_manifest(map(str, paths)), check_files(paths, split)
    for key, value in (expected or {}).items():
        if manifest.get(key) != value:
            raise UserError(f"the records in '{paths[0].parent}' have {key} {manifest.get(key)!r}, needed is {value!r}")
    return paths, manifest, counts


class _Parser:
    def __init__(self, manifest: dict[str, Any], folder: Path, seed: int, examples_per_row: int, row_multiple: int):
        self._sequence = manifest["max_seq_length"]
        self._predictions = manifest["max_predictions_per_seq"]
        self._seed = seed
        self._examples_per_row, self._row_multiple = examples_per_row, row_multiple
        self._pad_id = manifest["pad_id"]
        self._dynamic = manifest["masking"] == "dynamic"
        # Each example predicts a share of its tokens, rounded up; static records may mix shares, so 1 is the bound.
        share = manifest["masked_lm_prob"] if self._dynamic else 1.0
        self._predictions_per_row = examples_per_row + math.ceil(share * self._sequence)
        if self._dynamic:
            self._rule = MaskingRule(
                self._predictions, manifest["masked_lm_prob"], manifest["max_ngram"], manifest["whole_words"]
            )
            self._vocabulary = MaskingVocabulary.of(load_tokenizer(folder))

    def __call__(self, positions: tf.Tensor, records: tf.Tensor) -> dict[str, tf.Tensor]:
        features = self._parse_dynamic(positions, records) if self._dynamic else self._parse_static(records)
        features = {name: self._set_shape(name, value) for name, value in features.items()}
        if self._examples_per_row > 1:
            return pack_batch(
                features, self._examples_per_row, self._pad_id, self._row_multiple, self._predictions_per_row
            )
        for value in features.values():
            value.set_shape([records.shape[0], value.shape[1]])
        return features

    def _set_shape(self, name: str, value: tf.Tensor) -> tf.Tensor:
        value = tf.ensure_shape(value, [None, self._width(name)])
        return value if value.dtype == tf.float32 else tf.cast(value, tf.int32)

    def _width(self, name: str) -> int:
        return 1 if name == "next_sentence_labels" else self._predictions if "masked" in name else self._sequence

    def _parse_static(self, records: tf.Tensor) -> dict[str, tf.Tensor]:
        names = [
            "input_ids",
            "input_mask",
            "segment_ids",
            "masked_lm_positions",
            "masked_lm_ids",
            "next_sentence_labels",
        ]
        features = {name: tf.io.FixedLenFeature([self._width(name)], tf.int64) for name in names}
        weights = {"masked_lm_weights": tf.io.FixedLenFeature([self._predictions], tf.float32)}
        return tf.io.parse_example(records, features | weights)

    def _parse_dynamic(self, positions: tf.Tensor, records: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(
            records,
            {name: tf.io.RaggedFeature(tf.int64) for name in ("input_ids", "segment_ids")}
            | {"next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64)},
        )
        lengths = tf.cast(parsed["input_ids"].row_lengths(), tf.int32)
        input_ids, segment_ids = (
            tf.cast(parsed[name].to_tensor(padding, shape=[None, self._sequence]), tf.int32)
            for name, padding in (("input_ids", self._pad_id), ("segment_ids", 0))
        )
        # Not as TensorFlow operations, which take four times as long.
        masked, places, originals, counts = tf.numpy_function(
            self._mask, [positions, input_ids, lengths], [tf.int32] * 4
        )
        return {
            "input_ids": masked,
            "input_mask": tf.sequence_mask(lengths, self._sequence),
            "segment_ids": segment_ids,
            "masked_lm_positions": places,
            "masked_lm_ids": originals,
            "masked_lm_weights": tf.sequence_mask(tf.ensure_shape(counts, [None]), self._predictions, tf.float32),
            "next_sentence_labels": parsed["next_sentence_labels"],
        }

    def _mask(self, positions: np.ndarray, input_ids: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, ...]:
        keys = derive(self._seed, _MASKS, positions[:, None], np.zeros(1, int))
        return mask_examples(input_ids, lengths, keys.ravel(), self._rule, self._vocabulary)

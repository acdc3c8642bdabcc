"""Batches of serialised records to tensors by the official names."""

from pathlib import Path
from typing import Any

import tensorflow as tf

from tfrecords.graph_masking import derive, mask_batch
from tfrecords.masking import MaskingRule, MaskingVocabulary
from tfrecords.packing import pack_features
from tfrecords.tokenizers.base import load_tokenizer

_MASKS = 3


class Parser:
    """(positions int64 [batch], records string [batch] or, packed, [batch, examples_per_row]) to features.

    The features are those of `reader.read_examples`. The masks of a dynamic record depend on (seed, position, its place
    in the row). An empty string is no example.
    """

    def __init__(self, manifest: dict[str, Any], folder: Path, seed: int, examples_per_row: int):
        self._sequence = manifest["max_seq_length"]
        self._predictions = manifest["max_predictions_per_seq"]
        self._seed = seed
        self._examples_per_row = examples_per_row
        self._dynamic = manifest["masking"] == "dynamic"
        if self._dynamic:
            self._rule = MaskingRule(
                self._predictions, manifest["masked_lm_prob"], manifest["max_ngram"], manifest["whole_words"]
            )
            self._vocabulary = MaskingVocabulary.of(load_tokenizer(folder))

    def __call__(self, positions: tf.Tensor, records: tf.Tensor) -> dict[str, tf.Tensor]:
        flat = tf.reshape(records, [-1])
        features = self._parse_dynamic(positions, flat) if self._dynamic else self._parse_static(flat)
        features = {name: self._set_shape(name, value) for name, value in features.items()}
        if self._examples_per_row > 1:
            features = pack_features(features, self._examples_per_row)
        for value in features.values():
            value.set_shape([records.shape[0], value.shape[1]])
        return features

    def _set_shape(self, name: str, value: tf.Tensor) -> tf.Tensor:
        width = {"next_sentence_labels": 1}.get(
            name, self._predictions if name.startswith("masked") else self._sequence
        )
        value = tf.ensure_shape(value, [None, width])
        return value if value.dtype == tf.float32 else tf.cast(value, tf.int32)

    def _parse_static(self, records: tf.Tensor) -> dict[str, tf.Tensor]:
        # A record lacks nothing but when it is the empty one of an unfilled row.
        lacking = 0 if self._examples_per_row > 1 else None

        def feature(width: int, dtype: tf.DType = tf.int64) -> tf.io.FixedLenFeature:
            return tf.io.FixedLenFeature([width], dtype, None if lacking is None else [lacking] * width)

        sequence, predictions = feature(self._sequence), feature(self._predictions)
        return tf.io.parse_example(
            records,
            {
                "input_ids": sequence,
                "input_mask": sequence,
                "segment_ids": sequence,
                "masked_lm_positions": predictions,
                "masked_lm_ids": predictions,
                "masked_lm_weights": feature(self._predictions, tf.float32),
                "next_sentence_labels": feature(1),
            },
        )

    def _parse_dynamic(self, positions: tf.Tensor, records: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(
            records,
            {name: tf.io.RaggedFeature(tf.int64) for name in ("input_ids", "segment_ids", "token_boundary")}
            | {"next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64, [0])},
        )
        lengths = tf.cast(parsed["input_ids"].row_lengths(), tf.int32)

        def pad(name: str) -> tf.Tensor:
            return tf.cast(parsed[name].to_tensor(shape=[None, self._sequence]), tf.int32)

        keys = derive(self._seed, _MASKS, positions[:, None], tf.range(self._examples_per_row, dtype=tf.int64))
        masked = mask_batch(
            pad("input_ids"), lengths, pad("token_boundary") == 1, tf.reshape(keys, [-1]), self._rule, self._vocabulary
        )
        return masked | {
            "input_mask": tf.cast(tf.sequence_mask(lengths, self._sequence), tf.int32),
            "segment_ids": pad("segment_ids"),
            "next_sentence_labels": parsed["next_sentence_labels"],
        }

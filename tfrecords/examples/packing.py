"""Packs several short examples into one row; each attends only to itself.

Additional features: `sequence_ids` int32 [batch, sequence], the example's number in its row from 1, 0 for padding;
`position_ids` int32 [batch, sequence], from 0 in each example; `sequence_starts` int32 [batch, examples_per_row], the
position of each [CLS]; `pair_weights` float32 [batch, examples_per_row], 1, or 0 for missing examples.
next_sentence_labels is [batch, examples_per_row]; masked_lm_* hold the row's predictions, then padding.
"""

import numpy as np
import tensorflow as tf

from tfrecords.base.machine.compiled import compiled


def pack_batch(
    features: dict[str, tf.Tensor],
    examples_per_row: int,
    pad_id: int,
    row_multiple: int,
    predictions_per_row: int,
) -> dict[str, tf.Tensor]:
    """Packs the examples of a batch into few rows by first-fit-decreasing bin packing.

    Adds empty rows up to a multiple of row_multiple, but makes no more rows than examples.
    """
    sequence, count = features["input_ids"].shape[1], tf.shape(features["input_ids"])[0]

    def rows_of(lengths: np.ndarray) -> np.ndarray:
        rows = _first_fit(lengths, sequence, examples_per_row)
        wanted = max(len(rows), min(len(lengths), -(-len(rows) // row_multiple) * row_multiple))
        return np.pad(rows, ((0, wanted - len(rows)), (0, 0)), constant_values=len(lengths))

    rows = tf.numpy_function(rows_of, [tf.reduce_sum(features["input_mask"], axis=1)], tf.int64)
    rows = tf.reshape(tf.ensure_shape(rows, [None, examples_per_row]), [-1])
    present = rows < tf.cast(count, tf.int64)

    def in_rows(values: tf.Tensor) -> tf.Tensor:
        found = tf.gather(values, tf.where(present, rows, 0))
        return tf.where(present[:, None], found, tf.zeros_like(found))

    packed = pack_features({name: in_rows(values) for name, values in features.items()}, examples_per_row, pad_id)
    # An example has slots for a full row's predictions, and the head would score them all.
    order = tf.argsort(packed["masked_lm_weights"], direction="DESCENDING", stable=True)[:, :predictions_per_row]
    predictions = {
        name: tf.gather(values, order, batch_dims=1) for name, values in packed.items() if name.startswith("masked_lm_")
    }
    return packed | predictions


@compiled
def _first_fit(sizes, sequence, examples_per_row):
    rows = np.full((len(sizes), examples_per_row), len(sizes), np.int64)
    filled = np.zeros(len(sizes), np.int64)
    counts = np.zeros(len(sizes), np.int64)
    # The index breaks ties: the order must not depend on the sort's inner workings.
    order = np.argsort(-sizes.astype(np.int64) * len(sizes) + np.arange(len(sizes)))
    used = 0
    for example in order:
        row = 0
        while counts[row] == examples_per_row or filled[row] + sizes[example] > sequence:
            row += 1
        rows[row, counts[row]] = example
        counts[row] += 1
        filled[row] += sizes[example]
        used = max(used, row + 1)
    return rows[:used]


def pack_features(features: dict[str, tf.Tensor], examples_per_row: int, pad_id: int = 0) -> dict[str, tf.Tensor]:
    """Joins every `examples_per_row` consecutive examples into one row."""
    sequence = features["input_ids"].shape[1]
    lengths = tf.reduce_sum(features["input_mask"], axis=1)
    token_places = tf.sequence_mask(lengths, sequence)
    row_lengths = tf.reduce_sum(tf.reshape(lengths, [-1, examples_per_row]), axis=1)

    def join(values: tf.Tensor, padding: int = 0) -> tf.Tensor:
        rows = tf.RaggedTensor.from_row_lengths(tf.boolean_mask(values, token_places), row_lengths, validate=False)
        return rows.to_tensor(padding, shape=[None, sequence])

    def by_row(values: tf.Tensor) -> tf.Tensor:
        return tf.reshape(values, [-1, examples_per_row * values.shape[1]])

    starts = tf.cumsum(tf.reshape(lengths, [-1, examples_per_row]), axis=1, exclusive=True)
    number = tf.broadcast_to(tf.range(1, examples_per_row + 1), tf.shape(starts))
    present = tf.reshape(lengths > 0, [-1, examples_per_row])
    offsets = tf.cast(tf.reshape(starts, [-1, 1]), tf.int32)
    weights = features["masked_lm_weights"]
    return {
        "input_ids": join(features["input_ids"], pad_id),
        "input_mask": join(features["input_mask"]),
        "segment_ids": join(features["segment_ids"]),
        "sequence_ids": join(tf.broadcast_to(tf.reshape(number, [-1, 1]), tf.shape(token_places))),
        "position_ids": join(tf.broadcast_to(tf.range(sequence), tf.shape(token_places))),
        "sequence_starts": tf.where(present, starts, 0),
        "pair_weights": tf.cast(present, tf.float32),
        "masked_lm_positions": by_row(tf.where(weights > 0, features["masked_lm_positions"] + offsets, 0)),
        "masked_lm_ids": by_row(features["masked_lm_ids"]),
        "masked_lm_weights": by_row(weights),
        "next_sentence_labels": by_row(features["next_sentence_labels"]),
    }

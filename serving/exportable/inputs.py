"""Token ids as a server hands them over, made safe: whatever a batching server padded them with becomes padding again.

To join requests of different lengths a server repeats each request's own first element: ids end in copies of [CLS], a
mask of ones is filled up with ones.
"""

import tensorflow as tf

from serving.exportable.signature import specs
from tfrecords.framing import TokenBatch

_MATRIX = (None, None)
BY_LENGTHS = specs("input_ids", dtype=tf.int32, shape=_MATRIX) | specs("lengths", dtype=tf.int32)
SEGMENTS = specs("segment_ids", dtype=tf.int32, shape=_MATRIX)
EXAMPLES = specs("inputs")


def by_mask(dtype: tf.DType) -> dict[str, tf.TensorSpec]:
    return specs("input_ids", "input_mask", "segment_ids", dtype=dtype, shape=_MATRIX)


def batch_of_lengths(input_ids, lengths, segment_ids=None) -> TokenBatch:
    """lengths: int [batch], the tokens of each row. Columns behind the longest row are cut off, here and below."""
    return _masked(input_ids, tf.sequence_mask(lengths, tf.shape(input_ids)[1]), segment_ids)


def batch_of_mask(input_ids, input_mask, segment_ids=None) -> TokenBatch:
    """input_mask: int [batch, length], ones and then zeros: a mask with holes is not supported.

    All from a row's first 0 on is padding, whatever a server has put behind it. In a row without a 0, a run of the
    row's first id ([CLS]) at its end is.
    """
    positions = tf.range(tf.shape(input_ids)[1])
    last = tf.reduce_max(tf.where(input_ids != input_ids[:, :1], positions, 0), axis=1, keepdims=True)
    mask = tf.math.cumprod(tf.cast(input_mask > 0, tf.int32), axis=1) > 0
    return _masked(input_ids, mask & (positions <= last), segment_ids)


def _masked(input_ids, mask, segment_ids) -> TokenBatch:
    shape = tf.shape(input_ids)
    has_columns = tf.debugging.assert_less_equal(
        tf.minimum(shape[0], 1), shape[1], "input_ids has rows without a single token"
    )
    with tf.control_dependencies([has_columns]):
        positions = tf.range(shape[1])
    mask |= positions == 0
    width = tf.maximum(tf.reduce_max(tf.where(mask, positions + 1, 1)), 1)
    mask = tf.cast(mask[:, :width], tf.int32)
    segments = tf.zeros_like(mask) if segment_ids is None else tf.cast(segment_ids[:, :width], tf.int32) * mask
    return TokenBatch(tf.cast(input_ids[:, :width], tf.int32) * mask, mask, segments)


def batch_of_examples(serialized: tf.Tensor) -> TokenBatch:
    """tf.Examples with int64 lists input_ids and, if they are there, input_mask and segment_ids."""
    names = ("input_ids", "input_mask", "segment_ids")
    features = tf.io.parse_example(serialized, {name: tf.io.RaggedFeature(tf.int64) for name in names})
    tf.debugging.assert_positive(features["input_ids"].row_lengths(), "a tf.Example has no input_ids")
    size = features["input_ids"].bounding_shape()
    ids, mask, segments = (features[name].to_tensor(shape=size) for name in names)
    inside = tf.sequence_mask(features["input_ids"].row_lengths(), size[1])
    without_mask = (features["input_mask"].row_lengths() == 0)[:, tf.newaxis]
    return _masked(ids, inside & (without_mask | (mask > 0)), segments)

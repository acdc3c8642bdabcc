"""Attention by heads, and that of a batch of one row."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.layers.block import MASKED_SCORE
from albert_tf.layers.local_attention import PART, attend_nearby


class OneRow:
    """Attention of one row, which is all there is: without tables, gathers and conditions.

    In place of TokenRows, and with its numbers.

    Args:
        count: how many tokens the row has.
        places: int32 [tokens], where each is in the row; what comes after `count` is padding.
        config: of the encoder.
    """

    def __init__(self, count: tf.Tensor, places: tf.Tensor, config: AlbertConfig):
        self.config = config
        self.bias = tf.where(tf.range(tf.size(places)) < count, 0.0, MASKED_SCORE)[tf.newaxis, tf.newaxis, tf.newaxis]
        if config.position_type == "rotary":
            self.rotation = tf.complex(*rotation(places, config))[tf.newaxis, tf.newaxis]

    def attend(self, query_key_value: tf.Tensor, only_first: bool = False, is_local: bool = False) -> tf.Tensor:
        """Attends as TokenRows does."""
        by_head = tf.reshape(query_key_value, [1, -1, 3, self.config.num_attention_heads, self.config.head_size])
        query, key, value = tf.unstack(tf.transpose(by_head, [2, 0, 3, 1, 4]))
        if only_first:
            query = query[:, :, :1]
        if self.config.position_type == "rotary":
            query, key = turn(query, self.rotation[:, :, :1] if only_first else self.rotation), turn(key, self.rotation)
        contexts = attend_heads(query, key, value, lambda: self.bias, None, self.config, only_first, is_local)
        return tf.reshape(tf.transpose(contexts, [0, 2, 1, 3]), [-1, self.config.hidden_size])

    def first_tokens(self, hidden: tf.Tensor) -> tf.Tensor:
        """Picks the row's first token out of [tokens, hidden_size]."""
        return hidden[:1]


def attend_heads(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    bias: Callable[[], tf.Tensor],
    is_masked: tf.Tensor | None,
    config: AlbertConfig,
    only_first: bool,
    is_local: bool,
) -> tf.Tensor:
    """Attends from every query to the keys of its row and head.

    Args:
        query: [rows, heads, queries, head_size], scaled.
        key: [rows, heads, length, head_size].
        value: as the keys.
        bias: gives float32 [rows, 1, 1, length], what is added to the scores of keys.
        is_masked: bool scalar, whether that is not 0; None: it may be.
        config: of the encoder.
        only_first: whether the one query is each row's first token.
        is_local: whether to keys nearby alone; to the first token all are near.

    Returns:
        The contexts, as the queries.
    """

    def own_bias():
        return tf.cast(bias(), query.dtype)

    def to_all(query):
        scores = _scores(query, key)
        if is_masked is None:
            masked = scores + own_bias()
        else:
            masked = tf.cond(is_masked, lambda: scores + own_bias(), lambda: scores)
        return tf.matmul(tf.nn.softmax(masked), value)

    def nearby():
        return attend_nearby(query, key, value, own_bias(), _scores, _softmax, config.attention_window, MASKED_SCORE)

    length = tf.shape(key)[2]
    if not config.attention_window or only_first:
        return to_all(query)
    if is_local:
        return tf.cond(length <= config.attention_window + 1, lambda: to_all(query), nearby)
    return tf.cond(length <= PART, lambda: to_all(query), lambda: _by_parts(query, to_all))


def _scores(query: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    return tf.matmul(query, key, transpose_b=True)


def _softmax(scores: tf.Tensor, part: int) -> tf.Tensor:
    return tf.nn.softmax(scores)


def _by_parts(query: tf.Tensor, attend: Callable) -> tf.Tensor:
    """The contexts of [rows, heads, length, head_size] queries, PART of each row at a time: no square is ever whole."""
    count = -(-tf.shape(query)[2] // PART)

    def attend_part(part, contexts):
        context = attend(query[:, :, part * PART : (part + 1) * PART])
        return part + 1, contexts.write(part, tf.transpose(context, [2, 0, 1, 3]))

    contexts = tf.TensorArray(query.dtype, count, infer_shape=False, element_shape=[None, None, None, query.shape[3]])
    contexts = tf.while_loop(lambda part, _: part < count, attend_part, (0, contexts), parallel_iterations=1)[1]
    return tf.transpose(contexts.concat(), [1, 2, 0, 3])


def rotation(positions: tf.Tensor, config: AlbertConfig) -> tuple[tf.Tensor, tf.Tensor]:
    """Gives cosines and sines [tokens, head_size / 2] of the angles by which layers.rotary.Rotation turns."""
    half = config.head_size // 2
    frequencies = np.float32(config.rotary_theta) ** (-np.arange(half, dtype=np.float32) / half)
    angles = tf.cast(positions, tf.float32)[:, tf.newaxis] * frequencies
    return tf.cos(angles), tf.sin(angles)


def turn(heads: tf.Tensor, rotation: tf.Tensor) -> tf.Tensor:
    """Turns [rows, heads, length, head_size], whose pairs are neighbours, by complex [rows, 1, length, head_size / 2].

    Of three axes, the last as long as can be, since broadcasting computes an index for each of them.
    """
    rows, count, length, size = tf.unstack(tf.shape(heads))
    pairs = tf.bitcast(tf.reshape(tf.cast(heads, tf.float32), [rows, count, length * size // 2, 2]), tf.complex64)
    turned = pairs * tf.reshape(rotation, [rows, 1, length * size // 2])
    return tf.cast(tf.reshape(tf.bitcast(turned, tf.float32), tf.shape(heads)), heads.dtype)

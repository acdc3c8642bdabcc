"""Attention by heads, and that of a batch of one row."""

import abc
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.extensions.window import PART, attend_nearby
from serving.inference.relative import Pairs, RelativeScores

# Added to the scores of keys that are not attended to. The -10,000 of training lets through what scores more than that.
MASKED_SCORE = -1e30


def differing(segments: tf.Tensor, of_keys: tf.Tensor) -> tf.Tensor:
    """Tells pairs of different segments: int32 [rows, queries] and [rows, keys] to float32 [rows, 1, queries, keys]."""
    return tf.cast(segments[:, tf.newaxis, :, tf.newaxis] != of_keys[:, tf.newaxis, tf.newaxis], tf.float32)


class Reach(NamedTuple):
    """What a step's attention goes to, and what it is asked for.

    Attributes:
        only_summary: Whether the result is of the token alone that stands for each row.
        is_local: Whether to tokens nearby alone (albert_tf.extensions.window).
        relative: What scores distances, where positions are relative.
        step: Which of the plan's steps this is, for that.
        multiply: What multiplies matrices: tf.matmul, or what takes its arguments.
    """

    only_summary: bool = False
    is_local: bool = False
    relative: RelativeScores | None = None
    step: tf.Tensor | int = 0
    multiply: Callable = tf.matmul


class Rows(abc.ABC):
    """Rows of tokens that attend to each other; to nothing before them, if a subclass does not say so."""

    @abc.abstractmethod
    def attend(self, query_key_value: tf.Tensor, reach: Reach) -> tf.Tensor:
        """Attends from every token to those of its row.

        Args:
            query_key_value: [tokens, 3 * hidden_size] of what `with_memory` gives, the query scaled; it may end with
                padding.
            reach: What is attended to.

        Returns:
            The contexts, [tokens, hidden_size] or, of the tokens alone that stand for rows, [rows, hidden_size].
        """

    @abc.abstractmethod
    def summary_tokens(self, hidden: tf.Tensor) -> tf.Tensor:
        """Picks the token that stands for each row out of [tokens, hidden_size]."""

    def with_memory(self, inputs: tf.Tensor, step: tf.Tensor | int) -> tf.Tensor:
        """Gives [tokens, hidden_size], what a step's queries, keys and values are made of, with what is remembered."""
        return inputs


class OneRow(Rows):
    """Attention of one row, which is all there is: without tables, gathers and conditions.

    In place of TokenRows, and with its numbers.

    Args:
        count: how many tokens the row has.
        places: int32 [tokens], where each is in the row; what comes after `count` is padding.
        config: of the encoder.
        segments: int32 [tokens]; None: there is one segment, or they are no part of attention.
    """

    def __init__(self, count: tf.Tensor, places: tf.Tensor, config: AlbertConfig, segments: tf.Tensor | None = None):
        self.config = config
        self.size = tf.size(places)
        self.bias = tf.where(tf.range(self.size) < count, 0.0, MASKED_SCORE)[tf.newaxis, tf.newaxis, tf.newaxis]
        self.summary: Any = count - 1 if config.spec.last_token else 0
        self.differs = None if segments is None else differing(segments[tf.newaxis], segments[tf.newaxis])
        self._position_keys = dict[RelativeScores, tf.Tensor]()
        if config.position_type == "rotary":
            self.rotation = tf.complex(*rotation(places, config))[tf.newaxis, tf.newaxis]

    def prepare(self, relations: Sequence[RelativeScores]) -> None:
        """Takes what scores of distances are products with, once for all steps."""
        self._position_keys = {scores: scores.of_length(self.size, self.size) for scores in relations}

    def attend(self, query_key_value: tf.Tensor, reach: Reach) -> tf.Tensor:
        by_head = tf.reshape(query_key_value, [1, -1, 3, self.config.num_attention_heads, self.config.head_size])
        query, key, value = tf.unstack(tf.transpose(by_head, [2, 0, 3, 1, 4]))
        if reach.only_summary:
            query = query[:, :, self.summary : self.summary + 1]
        if self.config.position_type == "rotary":
            key, of_query = turn(key, self.rotation), self.rotation[:, :, :1] if reach.only_summary else self.rotation
            query = turn(query, of_query)
        score = None
        if reach.relative is not None:
            pairs = self._pairs(reach.relative, reach.only_summary)
            score = functools.partial(reach.relative, pairs=pairs, step=reach.step, multiply=reach.multiply)
        contexts = attend_heads(query, key, value, lambda: self.bias, None, self.config, reach, score)
        return tf.reshape(tf.transpose(contexts, [0, 2, 1, 3]), [-1, self.config.hidden_size])

    def summary_tokens(self, hidden: tf.Tensor) -> tf.Tensor:
        return hidden[self.summary : self.summary + 1]

    def _pairs(self, relative: RelativeScores, only_summary: bool) -> Pairs:
        position_keys = self._position_keys[relative]
        if not only_summary:
            return Pairs(self.differs, None, position_keys)
        differs = None if self.differs is None else self.differs[:, :, self.summary : self.summary + 1]
        return Pairs(differs, self.summary[tf.newaxis], position_keys)


def attend_heads(
    query: tf.Tensor,
    key: tf.Tensor,
    value: tf.Tensor,
    bias: Callable[[], tf.Tensor],
    is_masked: tf.Tensor | None,
    config: AlbertConfig,
    reach: Reach,
    score: Callable | None = None,
) -> tf.Tensor:
    """Attends from every query to the keys of its row and head.

    Args:
        query: [rows, heads, queries, head_size], scaled.
        key: [rows, heads, length, head_size].
        value: as the keys.
        bias: gives float32 [rows, 1, 1, length], what is added to the scores of keys.
        is_masked: bool scalar, whether that is not 0; None: it may be.
        config: of the encoder.
        reach: what is attended to. Where `only_summary`, the one query is the token that stands for each row; where
            `is_local`, all are near to the first token.
        score: gives scores [rows, heads, queries, keys] of queries and keys; None: their products.

    Returns:
        The contexts, as the queries.
    """

    score = score or functools.partial(reach.multiply, transpose_b=True)
    only_summary = reach.only_summary

    def own_bias():
        return tf.cast(bias(), query.dtype)

    def to_all(query):
        found = score(query, key)
        if config.attention_type == "uni" and not only_summary:
            # What stands in their place may be another query's, and NaN.
            masked = tf.where(_later(query, key), tf.constant(MASKED_SCORE, query.dtype), found + own_bias())
        elif is_masked is None:
            masked = found + own_bias()
        else:
            masked = tf.cond(is_masked, lambda: found + own_bias(), lambda: found)
        return reach.multiply(tf.nn.softmax(masked), value)

    def nearby():
        return attend_nearby(query, key, value, own_bias(), score, _softmax, config.attention_window, MASKED_SCORE)

    length = tf.shape(key)[2]
    if not config.attention_window or only_summary:
        return to_all(query)
    if reach.is_local:
        return tf.cond(length <= config.attention_window + 1, lambda: to_all(query), nearby)
    return tf.cond(length <= PART, lambda: to_all(query), lambda: _by_parts(query, to_all))


def _later(query: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """Which keys are behind a query, bool [queries, keys]; the first query is so far behind as there are more keys."""
    queries, keys = tf.shape(query)[2], tf.shape(key)[2]
    return tf.range(keys) > tf.range(queries)[:, tf.newaxis] + keys - queries


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

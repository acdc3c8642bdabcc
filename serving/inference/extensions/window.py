import dataclasses

import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.extensions import window
from albert_tf.layers.block import Attention, Step, TokenPairs, attend_to_all
from serving.inference.kernels import ExportedExtension
from serving.inference.rows import MASKED_SCORE, attend_by_parts


class ExportedWindow(ExportedExtension):
    """Chooses attention by row length: to all keys, or only to near keys."""

    def attention(self, attention: Attention) -> Attention:
        return dataclasses.replace(attention, attend=self._attend)

    def _attend(
        self, attention: Attention, query: Tensor, key: Tensor, value: Tensor, pairs: TokenPairs, step: Step
    ) -> Tensor:
        def to_all() -> Tensor:
            return attend_to_all(attention, query, key, value, pairs, step)

        def nearby() -> Tensor:
            def score(query: Tensor, key: Tensor) -> Tensor:
                return attention.score(attention, query, key, pairs, step)

            def weigh(scores: Tensor, part: int) -> Tensor:
                return attention.softmax(scores, step, part)

            bias = tf.cast(pairs.bias, query.dtype)
            blocks = GatheredBlocks(query, places)
            return window.attend_nearby(query, key, value, bias, score, weigh, blocks, MASKED_SCORE, with_first)

        length, places = tf.shape(key)[2], self.extension.attention_window
        with_first = self.extension.window_first_token
        if pairs.summary is not None:
            seen = self.extension.seen_by_summary(step)
            if seen.stop is not None:
                pairs = TokenPairs(pairs.bias[..., seen], {}, pairs.summary)
            return attend_to_all(attention, query, key[:, :, seen], value[:, :, seen], pairs, step)
        if self.extension.is_local(step):
            return tf.cond(length <= places + 1, to_all, nearby)
        return attend_by_parts(attention, query, key, value, pairs, step)


class GatheredBlocks(window.Blocks):
    """Blocks in few operations, whose sizes LiteRT knows before it computes: so one memory serves several tensors."""

    def __init__(self, rows: Tensor, window: int):
        self._last = tf.shape(rows)[2] - 1
        self._positions = tf.range(tf.shape(rows)[2])
        inside, firsts = self._positions[:window], tf.expand_dims(self._positions[::window], 1)
        near = tf.concat([inside - window, inside, inside + window], 0)
        self.is_near = tf.abs(near - tf.expand_dims(inside, 1)) <= window
        self._queries, self._keys = firsts + inside, firsts + near

    def own(self, rows: Tensor, filler: float = 0.0) -> Tensor:
        return tf.gather(rows, tf.minimum(self._queries, self._last), axis=2)

    def near(self, rows: Tensor, filler: float = 0.0) -> Tensor:
        places = tf.clip_by_value(self._keys, 0, self._last)
        found = tf.gather(rows, places, axis=2)
        return tf.where(tf.expand_dims(places == self._keys, -1), found, filler) if filler else found

    def join(self, contexts: Tensor) -> Tensor:
        count = tf.reduce_prod(tf.shape(self._queries), keepdims=True)
        shape = tf.concat([tf.shape(contexts)[:2], count, [contexts.shape[-1]]], 0)
        return tf.gather(tf.reshape(contexts, shape), self._positions, axis=2)


class LiteRtWindow(ExportedExtension):
    """Attends to near keys in rows of every length; LiteRT's conditions have results of unknown size."""

    for_litert = True

    def attention(self, attention: Attention) -> Attention:
        return self.extension.attention(attention, self.weights, GatheredBlocks)

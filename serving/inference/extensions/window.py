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
            return window.attend_nearby(query, key, value, bias, score, weigh, places, MASKED_SCORE, with_first)

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

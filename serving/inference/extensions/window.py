import dataclasses
from collections.abc import Callable

import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.extensions import window
from albert_tf.layers.block import Attention, Step, TokenPairs, attend_to_all
from serving.inference.kernels import ExportedExtension
from serving.inference.rows import MASKED_SCORE


class ExportedWindow(ExportedExtension):
    """Chooses attention by row length: to all keys, to all keys in parts, or only to near keys."""

    def attention(self, attention: Attention) -> Attention:
        return dataclasses.replace(attention, attend=self._attend)

    def _attend(
        self, attention: Attention, query: Tensor, key: Tensor, value: Tensor, pairs: TokenPairs, step: Step
    ) -> Tensor:
        def to_all(query: Tensor) -> Tensor:
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
            return tf.cond(length <= places + 1, lambda: to_all(query), nearby)
        return tf.cond(length <= window.PART, lambda: to_all(query), lambda: _by_parts(query, to_all))


def _by_parts(query: Tensor, attend: Callable) -> Tensor:
    size = window.PART
    count = -(-tf.shape(query)[2] // size)

    def attend_part(part: Tensor, contexts: tf.TensorArray) -> tuple[Tensor, tf.TensorArray]:
        context = attend(query[:, :, part * size : (part + 1) * size])
        return part + 1, contexts.write(part, tf.transpose(context, [2, 0, 1, 3]))

    contexts = tf.TensorArray(query.dtype, count, infer_shape=False, element_shape=[None, None, None, query.shape[3]])
    contexts = tf.while_loop(lambda part, _: part < count, attend_part, (0, contexts), parallel_iterations=1)[1]
    return tf.transpose(contexts.concat(), [1, 2, 0, 3])

"""The export version of XLNet's attention scores by distance and segments.

Exports store the position keys (encoded distances times a kernel), not the kernel. Terms that are equal for all keys
are left out.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.extensions.relative import BIASES
from albert_tf.extensions.relative.relations import distance_table
from albert_tf.layers.block import Attention, Step, TokenPairs
from albert_tf.layers.depth import Runner
from serving.inference.kernels import ExportedExtension, KernelSettings
from serving.inference.layers import array, variable
from serving.inference.rows import MASKED_SCORE, OneRow, longest_block


class ExportedRelative(ExportedExtension):
    """Relative positions with stored keys for all distances. Exports keep no memory of earlier rows."""

    def __init__(self, extension: Any, encoder: Any, settings: KernelSettings):
        super().__init__(extension, encoder, settings)
        longest = longest_block(settings.longest)
        halves = encoder.halves_of("attention")
        self.scores = [RelativeScores(half, longest, settings.dtype) for half in halves]

    def fold(self, parts: Sequence[np.ndarray], what: str, half: tuple[str, int]) -> Sequence[np.ndarray]:
        """Replaces the queries' bias by XLNet's content bias of the first step with this `half`."""
        if what != "bias":
            return parts
        content = self.weights.by_owner[half]["content_bias"]
        return content.reshape(-1, self.config.hidden_size)[0], *parts[1:]

    def rows(self, rows: Any, features: dict[str, Any]) -> Any:
        segments = features.get("segment_ids")
        if segments is not None:
            rows.add_feature("segments", rows.of_batch(segments))
        return rows

    def hoist(self, rows: Any) -> None:
        segments = rows.features.get("segments")
        if isinstance(rows, OneRow):
            size = tf.size(rows.is_real)
            rows.hoisted |= {scores: scores.of_length(size, size) for scores in self.scores}
            if segments is not None:
                rows.hoisted["differs"] = differing(segments, segments)

    def attention(self, attention: Attention) -> Attention:
        own = {"attend": _attend_backwards} if self.extension.attention_type == "uni" else {}
        return dataclasses.replace(attention, score=self._score, **own)

    def _score(self, attention: Attention, query: Tensor, key: Tensor, pairs: TokenPairs, step: Step):
        return self.scores[step.attention](attention, query, key, pairs, step)

    def around(self, runner: Runner) -> Runner:
        return runner


def _attend_backwards(
    attention: Attention, query: Tensor, key: Tensor, value: Tensor, pairs: TokenPairs, step: Step
) -> Tensor:
    """Lets queries attend to themselves and earlier tokens."""
    scores = attention.score(attention, query, key, pairs, step)
    if pairs.summary is None:
        places = tf.range(tf.shape(key)[2])
        later = places > places[:, tf.newaxis]
        # The values there may be another query's, or NaN.
        bias = tf.cast(pairs.bias, scores.dtype)
        masked = tf.where(later, tf.constant(MASKED_SCORE, scores.dtype), scores + bias)
    else:
        masked = pairs.masked(scores)
    return attention.multiply(attention.softmax(masked, step), value)


def differing(segments: Tensor, of_keys: Tensor) -> Tensor:
    """Returns 1 where query and key differ in segment, float32 [rows, 1, queries, keys]."""
    return tf.cast(segments[:, tf.newaxis, :, tf.newaxis] != of_keys[:, tf.newaxis, tf.newaxis], tf.float32)


class RelativeScores(tf.Module):
    """Scores the token pairs of an attention layer."""

    def __init__(self, half: Any, length: int, dtype: tf.DType):
        super().__init__()
        config = half.config
        heads, size, scale = config.num_attention_heads, config.head_size, config.head_size**-0.5
        self.longest = length
        with tf.init_scope():
            table = array(distance_table(config, config.hidden_size, length, length))
        position_keys = (table @ array(half.relative.kernel)).reshape(-1, heads, size).transpose(1, 0, 2)
        self.position_keys = variable(position_keys, dtype, "position_keys")
        content, position, segment = (array(getattr(half, name)).reshape(-1, heads, 1, size) for name in BIASES)
        same, other = np.split(array(half.segment_embeddings).reshape(-1, 2, heads, size), 2, axis=1)
        apart = (other - same).reshape(-1, heads, size, 1)
        # Of a query that has `content_bias`, scaled; see `query_key_value`.
        first = content[:1]
        self.of_content, self.of_position = scale * (content - first), scale * (position - first)
        self.apart, self.of_segment = apart, scale * (segment - first) @ apart
        self.is_untied = config.untie_biases and len(half.steps) > 1
        self.visits = [half.steps.index(step) if step in half.steps else 0 for step in range(config.num_steps)]

    def of_length(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Returns the position keys of distances between `queries` and `keys` tokens: [heads, distances, head_size]."""
        heads, distances, size = self.position_keys.shape
        first = self.longest - keys
        # "uni" attention has no negative ones.
        count = tf.minimum(keys + queries, distances - first)
        return tf.slice(self.position_keys.value(), [0, first, 0], [heads, count, size])

    def __call__(self, attention: Attention, query: Tensor, key: Tensor, pairs: Any, step: Step) -> Tensor:
        """Returns the scores [rows, heads, queries, keys].

        `query` is scaled and includes the first step's content bias; `pairs` has the feature "segments" if rows have
        several segments.
        """
        content = query + self._of_step(self.of_content, step, query) if self.is_untied else query
        scores = attention.multiply(content, key, transpose_b=True)
        of_position = query + self._of_step(self.of_position, step, query)
        scores += self._of_distances(attention, of_position, tf.shape(key)[2], pairs)
        if "segments" in pairs.features:
            of_segment = tf.matmul(query, self._of_step(self.apart, step, query))
            of_segment += self._of_step(self.of_segment, step, query)
            scores += of_segment * tf.cast(self._differs(pairs), query.dtype)
        return scores

    def _differs(self, pairs: Any) -> Tensor:
        if "differs" in pairs.hoisted and pairs.summary is None:
            return pairs.hoisted["differs"]
        return differing(*pairs.features["segments"])

    def _of_distances(self, attention: Attention, query: Tensor, keys: Tensor, pairs: Any) -> Tensor:
        queries = keys if pairs.summary is not None else tf.shape(query)[2]
        position_keys = pairs.hoisted.get(self)
        position_keys = self.of_length(queries, keys) if position_keys is None else position_keys
        of_distances = attention.multiply(query, position_keys, transpose_b=True)
        if pairs.summary is None:
            return shifted(of_distances, keys)
        # Behind the query, "uni" attention has no distances; what is there is padding.
        last = tf.shape(of_distances)[3] - 1
        columns = tf.minimum(keys - pairs.summary + tf.range(keys), last)
        return tf.gather(of_distances, columns, axis=3, batch_dims=1)

    def _of_step(self, table: np.ndarray, step: Step, like: Tensor) -> Tensor:
        if len(table) == 1:
            return tf.constant(table[0], like.dtype)
        return tf.constant(table, like.dtype)[tf.constant(self.visits)[step.number]]


def shifted(scores: Tensor, keys: Tensor) -> Tensor:
    """Converts scores by distance to scores by key, [rows, heads, queries, keys].

    Column j of query i comes from column j + queries - i; reshaping to rows one column shorter aligns them. Only
    matrices are sliced, since TensorFlow copies these by whole rows.
    """
    rows, heads, queries, count = tf.unstack(tf.shape(scores))
    each = rows * heads
    flat = tf.reshape(scores, [each, queries * count])
    flat = tf.slice(flat, [0, queries], [each, queries * (count - 1)])
    columns = tf.slice(tf.reshape(flat, [each * queries, count - 1]), [0, 0], [each * queries, keys])
    return tf.reshape(columns, [rows, heads, queries, keys])

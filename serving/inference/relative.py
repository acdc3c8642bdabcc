"""Scores of pairs of tokens by their distance and their segments: the twin of `albert_tf.extensions.relative`.

Between export and answer, W_r R hangs on nothing, so it is held in place of W_r: one matrix for all steps that share
their attention, of all distances that the longest row has. What all keys' scores have in common is left out.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.extensions.relative import BIASES
from albert_tf.extensions.relative.relations import distance_table
from serving.inference.dense import array, variable


class Pairs(NamedTuple):
    """What queries and keys of some rows are to each other.

    Attributes:
        differs: [rows, 1, queries, keys], 1 for pairs of different segments, 0 for others; None: there is one segment.
        places: int32 [rows], where the one query of each row stands; None: queries are all tokens of a row, and keys
            these behind so many others as there are more keys.
        position_keys: what `RelativeScores.of_length` gives for their number, if that is known already.
    """

    differs: tf.Tensor | None = None
    places: tf.Tensor | None = None
    position_keys: tf.Tensor | None = None


class RelativeScores(tf.Module):
    """Scores the pairs of an attention half.

    Args:
        layer: Keras's RelativeAttention.
        length: of the longest row, in tokens.
        memory: the most places before a row.
        dtype: of queries and keys.
    """

    def __init__(self, layer, length: int, memory: int, dtype: tf.DType):
        super().__init__()
        config = layer.config
        heads, size, scale = config.num_attention_heads, config.head_size, config.head_size**-0.5
        self.longest = length + memory
        with tf.init_scope():
            table = array(distance_table(config, config.hidden_size, length, self.longest))
        position_keys = (table @ array(layer.relative.kernel)).reshape(-1, heads, size).transpose(1, 0, 2)
        self.position_keys = variable(position_keys, dtype, "position_keys")
        content, position, segment = (array(getattr(layer, name)).reshape(-1, heads, 1, size) for name in BIASES)
        same, other = np.split(array(layer.segment_embeddings).reshape(-1, 2, heads, size), 2, axis=1)
        apart = (other - same).reshape(-1, heads, size, 1)
        # Of a query that has `content_bias`, scaled; see `query_key_value`.
        first = content[:1]
        self.of_content, self.of_position = scale * (content - first), scale * (position - first)
        self.apart, self.of_segment = apart, scale * (segment - first) @ apart
        self.is_untied = config.untie_biases and len(layer.steps) > 1
        self.visits = [layer.steps.index(step) if step in layer.steps else 0 for step in range(config.num_steps)]

    def of_length(self, queries: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Gives W_r R of all distances from so many queries to so many keys, [heads, distances, head_size]."""
        heads, distances, size = self.position_keys.shape
        first = self.longest - keys
        # "uni" attention has no negative ones.
        count = tf.minimum(keys + queries, distances - first)
        return tf.slice(self.position_keys.value(), [0, first, 0], [heads, count, size])

    def __call__(
        self, query: tf.Tensor, key: tf.Tensor, pairs: Pairs, step: tf.Tensor | int, multiply: Callable = tf.matmul
    ) -> tf.Tensor:
        """Scores [rows, heads, queries, keys].

        Args:
            query: [rows, heads, queries, head_size], scaled, and with the content bias of the first of the steps.
            key: [rows, heads, keys, head_size].
            pairs: of them.
            step: which of the plan's steps this is.
            multiply: What multiplies matrices, as tf.matmul does.
        """
        content = query + self._of_step(self.of_content, step, query) if self.is_untied else query
        scores = multiply(content, key, transpose_b=True)
        of_position = query + self._of_step(self.of_position, step, query)
        scores += self._of_distances(
            of_position, tf.shape(key)[2], pairs, functools.partial(multiply, transpose_b=True)
        )
        if pairs.differs is not None:
            of_segment = tf.matmul(query, self._of_step(self.apart, step, query))
            of_segment += self._of_step(self.of_segment, step, query)
            scores += of_segment * tf.cast(pairs.differs, query.dtype)
        return scores

    def _of_distances(self, query: tf.Tensor, keys: tf.Tensor, pairs: Pairs, score: Callable) -> tf.Tensor:
        position_keys = pairs.position_keys
        if pairs.places is None:
            if position_keys is None:
                position_keys = self.of_length(tf.shape(query)[2], keys)
            return shifted(score(query, position_keys), keys)
        if position_keys is None:
            position_keys = self.of_length(keys, keys)
        of_distances = score(query, position_keys)
        # Behind the query, "uni" attention has no distances; what is there is padding.
        last = tf.shape(of_distances)[3] - 1
        columns = tf.minimum(keys - pairs.places[:, tf.newaxis] + tf.range(keys), last)
        return tf.gather(of_distances, columns, axis=3, batch_dims=1)

    def _of_step(self, table: np.ndarray, step: tf.Tensor | int, like: tf.Tensor) -> tf.Tensor:
        """What a step has of float32 [visits, heads, ...]."""
        if len(table) == 1:
            return tf.constant(table[0], like.dtype)
        return tf.constant(table, like.dtype)[tf.constant(self.visits)[step]]


def shifted(scores: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
    """Gives [rows, heads, queries, keys], whose column j is column j + queries - i of query i's scores by distance.

    The numbers of a query lie one further to the left than those of the one before: in a row that is one shorter,
    below each other. Of matrices, since TensorFlow copies what it cuts out of these alone by whole rows: 0.5 ms and
    not 1.5 or more for 12 heads of 128 queries.
    """
    rows, heads, queries, count = tf.unstack(tf.shape(scores))
    each = rows * heads
    flat = tf.reshape(scores, [each, queries * count])
    flat = tf.slice(flat, [0, queries], [each, queries * (count - 1)])
    columns = tf.slice(tf.reshape(flat, [each * queries, count - 1]), [0, 0], [each * queries, keys])
    return tf.reshape(columns, [rows, heads, queries, keys])

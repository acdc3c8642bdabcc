"""Attention whose scores are of content, of distance and of segments: XLNet's, after Transformer-XL.

Source: zihangdai/xlnet modeling.py:128-160, 319-382. The score of query i and key j is, over the root of head_size,

    (q_i + content_bias) k_j + (q_i + position_bias) W_r R[i - j] + (q_i + segment_bias) s[segments differ]
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.block import SelfAttention
from albert_tf.layers.dense import dense, initializer
from albert_tf.layers.depth import of_step, visit_of
from albert_tf.layers.dropout import dropout, site_seed
from albert_tf.layers.relative import Relations

BIASES = ("content_bias", "position_bias", "segment_bias")
# Its weights that are no dense layer's.
OWN_WEIGHTS = (*BIASES, "segment_embeddings")


class RelativeAttention(SelfAttention):
    """Computes layer_norm(hidden + output(attend(query, key, value))) with scores of content, distance and segment.

    query, key, value, output and relative (W_r) are Dense layers without biases, kernels [hidden_size, hidden_size].
    The biases are [heads, head_size], the segment embeddings [2, heads, head_size], of the same and another segment;
    with `untie_biases`, each step that runs the layer has its own: [steps, ...].

    Args:
        config: of the encoder.
        steps: numbers of the plan's steps that it runs at.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    has_bias = False

    def __init__(self, config: AlbertConfig, steps: Sequence[int] = (), **kwargs: Any):
        super().__init__(config, steps, **kwargs)
        self.steps = tuple(steps)
        self.is_untied = config.untie_biases and len(self.steps) > 1
        self.relative = dense(config, config.hidden_size, use_bias=False, dtype=self.dtype_policy, name="relative")

    def build(self, input_shape: Any = None) -> None:
        super().build(input_shape)
        config = self.config
        self.relative.build((None, config.hidden_size))
        shape = (*((len(self.steps),) if self.is_untied else ()), config.num_attention_heads, self.head_size)
        for name in BIASES:
            setattr(self, name, self.add_weight(name=name, shape=shape, initializer=initializer(config)))
        shape = (*shape[:-2], 2, *shape[-2:])
        self.segment_embeddings = self.add_weight(
            name="segment_embeddings", shape=shape, initializer=initializer(config)
        )

    def position_keys(self, distances: Tensor) -> Tensor:
        """Gives W_r of encoded distances, [..., distances, hidden_size] to [..., heads, distances, head_size].

        It hangs on no input, nor on the step: an export can keep it as a constant.
        """
        count = ops.shape(distances)[1]
        split = ops.reshape(self.relative(distances), (-1, count, self.config.num_attention_heads, self.head_size))
        return ops.transpose(split, (0, 2, 1, 3))

    def call(
        self,
        hidden: Tensor,
        bias: Tensor,
        length: Tensor,
        seed: Tensor = None,
        step: Tensor = 0,
        places: Relations | None = None,
        is_local: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Lets every token attend to its row's content and memory; see `SelfAttention.call`.

        Args:
            hidden: [batch * (sequence + queries), hidden_size].
            bias: None; `places` holds the masks.
            length: sequence + queries.
            seed: see there.
            step: see there.
            places: of the batch.
            is_local: False.

        Returns:
            The new hidden, same shape, and the content stream's attention probabilities
            [batch, heads, sequence, memory + sequence].
        """
        assert places is not None
        width = self.config.hidden_size
        inputs = self.layer_norm(hidden) if self.config.norm_position == "pre" else hidden
        attended = places.content(ops.reshape(inputs, (-1, length, width)))
        if places.memory is not None:
            memory = of_step(places.memory, step)
            memory = self.layer_norm(memory) if self.config.norm_position == "pre" else memory
            attended = ops.concatenate([memory, attended], axis=1)
        attended = ops.reshape(attended, (-1, width))
        key, value = (self._heads(self._project(name, attended, step), places.keys) for name in ("key", "value"))
        query = self._heads(self._project("query", inputs, step), length)
        scores = self._scores(query, key, places, step)
        probabilities = ops.cast(ops.softmax(ops.cast(scores, "float32"), axis=-1), scores.dtype)
        dropped = dropout(probabilities, self.config.attention_probs_dropout_prob, site_seed(seed, 0))
        context = ops.reshape(ops.transpose(ops.matmul(dropped, value), (0, 2, 1, 3)), (-1, length, width))
        context = ops.reshape(places.weighed(context), (-1, width))
        context = dropout(self._project("output", context, step), self.config.hidden_dropout_prob, site_seed(seed, 1))
        probabilities = probabilities[:, :, : places.length]
        if self.config.norm_position == "pre":
            return hidden + context, probabilities
        return self.layer_norm(hidden, context), probabilities

    def _scores(self, query: Tensor, key: Tensor, places: Relations, step: Tensor) -> Tensor:
        """[batch, heads, sequence + queries, keys]."""
        scale, is_half = self.head_size**-0.5, query.dtype == "float16"
        # Unscaled products of wide heads may pass a float16's 65504.
        early, late = (scale, 1.0) if is_half else (1.0, scale)
        content, position, segment = (
            (query + self._of_step(getattr(self, name), step)[:, None]) * early for name in BIASES
        )
        scores = ops.matmul(content, ops.swapaxes(key, -1, -2))
        projected = places.projected.get(self)
        projected = self.position_keys(places.distances) if projected is None else projected
        of_distances = ops.matmul(position, ops.swapaxes(places.by_row(projected), -1, -2))
        scores = scores + places.scores(of_distances)
        if places.differs is not None:
            # What all keys' scores have in common changes no probability: only what another segment adds is added.
            same, other = ops.unstack(self._of_step(self.segment_embeddings, step), 2, axis=0)
            added = ops.sum(segment * (other - same)[:, None], axis=-1, keepdims=True)
            scores = scores + added * places.differs
        scores = scores * late
        return scores if places.bias is None else scores + places.bias

    def _of_step(self, weight: keras.Variable, step: Tensor) -> Tensor:
        if not self.is_untied:
            return ops.convert_to_tensor(weight)
        return of_step(weight, visit_of(self.config, self.steps, step))

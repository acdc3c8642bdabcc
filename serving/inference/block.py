"""The two halves of a depth step, over [tokens, hidden_size] of the products' dtype."""

import numpy as np
import tensorflow as tf

from serving.inference.rows import Rows
from serving.inference.weights import Dense, LayerNorm, arrays, dense


class Attention(tf.Module):
    """Self-attention, residual, layer norm."""

    def __init__(self, layer, dtype: tf.DType):
        super().__init__()
        self.query_key_value = Dense(*query_key_value(layer), dtype)
        self.output = dense(layer.output_dense, dtype)
        self.layer_norm = LayerNorm(layer.layer_norm, dtype)

    def __call__(self, hidden: tf.Tensor, rows: Rows, step: tf.Tensor | int, only_first: bool = False) -> tf.Tensor:
        """step: which of the plan's steps this is. only_first: the result is of each row's first token alone."""
        context = rows.attend(self.query_key_value(hidden), only_first)
        return self.layer_norm(self.output(context, rows.first_tokens(hidden) if only_first else hidden))


class FeedForward(tf.Module):
    """Two dense layers, residual, layer norm."""

    def __init__(self, layer, dtype: tf.DType):
        super().__init__()
        self.intermediate = dense(layer.intermediate, dtype, layer.config.hidden_act)
        self.output = dense(layer.output_dense, dtype)
        self.layer_norm = LayerNorm(layer.layer_norm, dtype)

    def __call__(self, hidden: tf.Tensor, step: tf.Tensor | int) -> tf.Tensor:
        return self.layer_norm(self.output(self.intermediate(hidden), hidden))


def query_key_value(layer) -> tuple[np.ndarray, np.ndarray]:
    """Kernel and bias of a SelfAttention's three products as one; the scores' scale is folded into the query."""
    kernels, biases = zip(*(arrays(part) for part in (layer.query, layer.key, layer.value)))
    factors = layer.config.head_size**-0.5, 1.0, 1.0
    return tuple(
        np.concatenate([part * factor for part, factor in zip(parts, factors)], axis=-1) for parts in (kernels, biases)
    )

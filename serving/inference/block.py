"""The two halves of a depth step, over float32 [tokens, hidden_size]."""

import numpy as np
import tensorflow as tf

from albert_tf.layers.dense import activation
from serving.inference.rows import Rows
from serving.inference.weights import Dense, LayerNorm, array, dense


class Attention(tf.Module):
    """Self-attention, residual, layer norm."""

    def __init__(self, layer, dtype: tf.DType, constant: bool = True):
        super().__init__()
        self.query_key_value = query_key_value(layer, dtype, constant)
        self.output = dense(layer.output_dense, dtype, constant)
        self.layer_norm = LayerNorm(layer.layer_norm)

    def __call__(self, hidden: tf.Tensor, rows: Rows, step: tf.Tensor | int) -> tf.Tensor:
        """step: which of the plan's steps this is."""
        context = self.output(rows.attend(self.query_key_value(hidden)))
        return self.layer_norm(hidden + tf.cast(context, tf.float32))


class FeedForward(tf.Module):
    """Two dense layers, residual, layer norm."""

    def __init__(self, layer, dtype: tf.DType, constant: bool = True):
        super().__init__()
        self.activation = activation(layer.config.hidden_act)
        self.intermediate = dense(layer.intermediate, dtype, constant)
        self.output = dense(layer.output_dense, dtype, constant)
        self.layer_norm = LayerNorm(layer.layer_norm)

    def __call__(self, hidden: tf.Tensor, step: tf.Tensor | int) -> tf.Tensor:
        transformed = self.output(self.activation(self.intermediate(hidden)))
        return self.layer_norm(hidden + tf.cast(transformed, tf.float32))


def query_key_value(layer, dtype: tf.DType, constant: bool = True) -> Dense:
    """The three products of a SelfAttention as one; the scores' scale is folded into the query."""
    parts = [(layer.query, layer.config.head_size**-0.5), (layer.key, 1.0), (layer.value, 1.0)]
    return Dense(
        np.concatenate([array(part.kernel) * factor for part, factor in parts], axis=1),
        np.concatenate([array(part.bias) * factor for part, factor in parts]),
        dtype,
        constant,
    )

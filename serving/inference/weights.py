"""A Keras encoder's weights as the bare variables that the inference encoder holds."""

import keras
import numpy as np
import tensorflow as tf

from albert_tf.layers.attention import SelfAttention
from albert_tf.layers.feed_forward import FeedForward


class Dense:
    """kernel [inputs, units] in the dtype of the products, bias [units] (or None) in the same.

    Constants, made anew wherever they are used: only where MatMul's weights are a constant of the very same function
    does oneDNN pack them once and run its fastest kernel.
    """

    def __init__(self, kernel: np.ndarray, bias: np.ndarray | None, dtype: tf.DType):
        self.dtype = dtype
        self.kernel = kernel.astype(dtype.as_numpy_dtype)
        self.bias = None if bias is None else bias.astype(dtype.as_numpy_dtype)

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        product = tf.matmul(inputs, tf.constant(self.kernel))
        return product if self.bias is None else tf.nn.bias_add(product, tf.constant(self.bias))


class LayerNorm(tf.Module):
    """Over the last axis, in float32 whatever comes in; gives float32."""

    def __init__(self, layer):
        super().__init__()
        self.epsilon = layer.epsilon
        self.gamma = variable(layer.gamma, tf.float32, "gamma")
        self.beta = variable(layer.beta, tf.float32, "beta")

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        exact = tf.cast(inputs, tf.float32)
        mean = tf.reduce_mean(exact, axis=-1, keepdims=True)
        centred = exact - mean
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        return centred * (tf.math.rsqrt(variance + self.epsilon) * self.gamma) + self.beta


class AttentionWeights(tf.Module):
    """Query, key and value in one product; the score's scale is folded into the query."""

    def __init__(self, layer: SelfAttention, dtype: tf.DType):
        super().__init__()
        scale = layer.config.head_size**-0.5
        parts = [(layer.query, scale), (layer.key, 1.0), (layer.value, 1.0)]
        self.query_key_value = Dense(
            np.concatenate([array(part.kernel) * factor for part, factor in parts], axis=1),
            np.concatenate([array(part.bias) * factor for part, factor in parts]),
            dtype,
        )
        self.output = dense(layer.output_dense, dtype)
        self.layer_norm = LayerNorm(layer.layer_norm)


class FeedForwardWeights(tf.Module):
    def __init__(self, layer: FeedForward, dtype: tf.DType):
        super().__init__()
        self.intermediate = dense(layer.intermediate, dtype)
        self.output = dense(layer.output_dense, dtype)
        self.layer_norm = LayerNorm(layer.layer_norm)


def dense(layer: keras.layers.Dense, dtype: tf.DType) -> Dense:
    return Dense(array(layer.kernel), None if layer.bias is None else array(layer.bias), dtype)


def array(value) -> np.ndarray:
    return keras.ops.convert_to_numpy(value).astype(np.float32)


def variable(value, dtype: tf.DType, name: str) -> tf.Variable:
    return tf.Variable(tf.cast(array(value), dtype), trainable=False, name=name)

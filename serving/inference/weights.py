"""The parts that hold weights: dense layers and layer norms of a Keras encoder, as TensorFlow ops use them."""

import keras
import numpy as np
import tensorflow as tf


class Dense(tf.Module):
    """kernel [inputs, units] in the dtype of the products, bias [units] (or None) in the same.

    Args:
        dtype: of the products.
        constant: whether the graph holds the weights, as constants: only where MatMul's weights are a constant of the
            very same function does oneDNN pack them once and run its fastest kernel. Variables take less memory.
    """

    def __init__(self, kernel: np.ndarray, bias: np.ndarray | None, dtype: tf.DType, constant: bool = True):
        super().__init__()
        self.dtype = dtype
        make = _as_array if constant else variable
        self.kernel = make(kernel, dtype, "kernel")
        self.bias = None if bias is None else make(bias, dtype, "bias")

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """[tokens, inputs] of any float type to [tokens, units] in the layer's."""
        product = tf.matmul(tf.cast(inputs, self.dtype), tf.convert_to_tensor(self.kernel))
        return product if self.bias is None else tf.nn.bias_add(product, tf.convert_to_tensor(self.bias))


class LayerNorm:
    """Over the last axis, in float32 whatever comes in; gives float32."""

    def __init__(self, layer):
        self.epsilon = layer.epsilon
        self.gamma, self.beta = array(layer.gamma), array(layer.beta)

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        exact = tf.cast(inputs, tf.float32)
        centred = exact - tf.reduce_mean(exact, axis=-1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
        return centred * (tf.math.rsqrt(variance + self.epsilon) * self.gamma) + self.beta


def dense(layer: keras.layers.Dense, dtype: tf.DType, constant: bool = True) -> Dense:
    return Dense(array(layer.kernel), None if layer.bias is None else array(layer.bias), dtype, constant)


def array(value) -> np.ndarray:
    with tf.init_scope():  # also while a graph is being built
        return keras.ops.convert_to_numpy(value).astype(np.float32)


def variable(value, dtype: tf.DType, name: str) -> tf.Variable:
    return tf.Variable(tf.cast(array(value), dtype), trainable=False, name=name)


def _as_array(value: np.ndarray, dtype: tf.DType, name: str) -> np.ndarray:
    return value.astype(dtype.as_numpy_dtype)

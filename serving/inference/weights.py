"""The parts that hold weights: dense layers and layer norms of a Keras encoder, as TensorFlow ops use them."""

import keras
import numpy as np
import tensorflow as tf

from albert_tf.layers.dense import activation
from serving.inference import onednn


class Dense(tf.Module):
    """Variables kernel [inputs, units] and bias [units], in the dtype of the products.

    Args:
        kernel, bias: float32 arrays.
        dtype: of the products; bfloat16 ones are oneDNN's, float32 ones run on any TensorFlow.
        hidden_act: an activation function's name, as in AlbertConfig.
    """

    def __init__(self, kernel: np.ndarray, bias: np.ndarray, dtype: tf.DType, hidden_act: str | None = None):
        super().__init__()
        self.dtype, self.hidden_act = dtype, hidden_act
        self.kernel, self.bias = variable(kernel, dtype, "kernel"), variable(bias, dtype, "bias")

    def __call__(self, inputs: tf.Tensor, residual: tf.Tensor | None = None) -> tf.Tensor:
        """[tokens, inputs] of any float type to [tokens, units] in the layer's; `residual`, in that too, is added."""
        inputs, kernel, bias = tf.cast(inputs, self.dtype), self.kernel.value(), self.bias.value()
        fused = self.dtype == tf.bfloat16 and onednn.FUSED_ACTIVATIONS.get(self.hidden_act)
        if self.dtype == tf.bfloat16 and (fused or self.hidden_act is None):
            return onednn.matmul(inputs, kernel, bias, fused, residual)
        product = tf.nn.bias_add(tf.matmul(inputs, kernel), bias)
        if self.hidden_act is not None:
            product = activation(self.hidden_act)(product)
        return product if residual is None else residual + product


class LayerNorm:
    """Over the last axis, float32 inside; dtype is of inputs and results.

    A token's result has the same bits whatever tokens are beside it, since the rounding to 8 bits or bfloat16 that
    follows makes a large difference of the smallest. So there is no kernel for many tokens
    (oneDNN's takes half the time from 384 tokens on, four times as long at 32), and no rsqrt: its vector instructions
    round other than the scalar ones that take what is left over.
    """

    def __init__(self, layer, dtype: tf.DType = tf.float32):
        self.dtype, self.epsilon = dtype, layer.epsilon
        self.gamma, self.beta = array(layer.gamma), array(layer.beta)

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """[tokens, units] to the same."""
        inputs = tf.cast(inputs, tf.float32)
        centred = inputs - tf.reduce_mean(inputs, axis=-1, keepdims=True)
        deviation = tf.sqrt(tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True) + self.epsilon)
        # Of a plain 1 / sqrt grappler makes an rsqrt.
        scale = tf.math.divide_no_nan(1.0, deviation) * self.gamma
        return tf.cast(centred * scale + self.beta, self.dtype)


def dense(layer: keras.layers.Dense, dtype: tf.DType, hidden_act: str | None = None) -> Dense:
    return Dense(*arrays(layer), dtype, hidden_act)


def arrays(layer: keras.layers.Dense) -> tuple[np.ndarray, np.ndarray]:
    """float32 kernel [inputs, units] and bias [units], zeros where the layer has none."""
    kernel = array(layer.kernel)
    return kernel, np.zeros(kernel.shape[1], np.float32) if layer.bias is None else array(layer.bias)


def array(value) -> np.ndarray:
    with tf.init_scope():  # also while a graph is being built
        return keras.ops.convert_to_numpy(value).astype(np.float32)


def variable(value, dtype: tf.DType, name: str) -> tf.Variable:
    return tf.Variable(tf.cast(array(value), dtype), trainable=False, name=name)

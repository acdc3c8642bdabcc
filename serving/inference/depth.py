"""What is done between the steps of an encoder with extensions over depth: the twins of `albert_tf.layers`' own."""

import numpy as np
import tensorflow as tf

from albert_tf.layers.halting import HaltingState, updated
from albert_tf.layers.hyper_connections import EPSILON
from serving.inference.layers import array, variable


class StepSignal:
    """Adds the vector of a step to every token."""

    def __init__(self, layer, dtype: tf.DType):
        self.table = np.stack([array(layer.signal(step)) for step in range(layer.config.num_steps)])
        self.dtype = dtype

    def __call__(self, hidden: tf.Tensor, step: tf.Tensor | int) -> tf.Tensor:
        """Takes and gives [tokens, hidden_size]."""
        return hidden + tf.constant(self.table, self.dtype)[step]


class HyperConnections(tf.Module):
    """Several residual streams, [tokens, streams, hidden_size], read and written by gates of each step.

    Gates and norm are float32. What the streams' content weighs in the gates is folded into the kernel, and the factors
    of post and res into one row for each step.
    """

    def __init__(self, layer, dtype: tf.DType):
        super().__init__()
        self.dtype, self.streams, self.width = dtype, layer.streams, layer.config.hidden_size
        scale = np.repeat(array(layer.scale), self.streams, axis=1)
        self.kernel = variable(array(layer.kernel) * scale[:, np.newaxis], dtype, "kernel")
        self.bias, gate = array(layer.bias), array(layer.gate)[:, np.newaxis]
        ones = np.ones((1, self.streams), np.float32)
        self.factors = np.concatenate([ones + 0 * gate, 2 * ones + 0 * gate, gate * ones], axis=1)
        self.signal = array(layer.signal)

    def start(self, hidden: tf.Tensor) -> tf.Tensor:
        """Makes the first streams of [tokens, hidden_size]."""
        return tf.tile(hidden[:, tf.newaxis], [1, self.streams, 1])

    def read(self, step: tf.Tensor | int, streams: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Gives a step's input [tokens, hidden_size], and the gates float32 [tokens, 3 * streams]."""
        flat = tf.reshape(streams, [-1, self.streams * self.width])
        norm = tf.cast(tf.raw_ops.EuclideanNorm(input=flat, axis=[1], keep_dims=True), tf.float32)
        size = tf.sqrt(tf.square(norm) / flat.shape[1] + EPSILON)
        products = tf.cast(tf.matmul(flat, self.kernel[step]), tf.float32)
        gates = tf.sigmoid(products / size + tf.constant(self.bias)[step]) * tf.constant(self.factors)[step]
        pre = tf.cast(gates[:, tf.newaxis, : self.streams], self.dtype)
        return tf.matmul(pre, streams)[:, 0], gates

    def write(self, step: tf.Tensor | int, streams: tf.Tensor, output: tf.Tensor, gates: tf.Tensor) -> tf.Tensor:
        """Gives the streams after a step whose block gave `output`, [tokens, hidden_size]."""
        gates = tf.cast(gates, self.dtype)[:, :, tf.newaxis]
        post, res = gates[:, self.streams : 2 * self.streams], gates[:, 2 * self.streams :]
        written = output + tf.constant(self.signal, self.dtype)[step]
        return res * streams + post * written[:, tf.newaxis]

    def mean(self, streams: tf.Tensor) -> tf.Tensor:
        """Gives what the streams come to: [tokens, hidden_size]."""
        return tf.cast(tf.reduce_mean(tf.cast(streams, tf.float32), axis=1), self.dtype)


class Halting:
    """The sums of adaptive computation time, float32, by which every token takes as many steps as it needs."""

    def __init__(self, layer):
        self.config = layer.config
        self.kernel, self.bias, self.gate = array(layer.kernel), array(layer.bias), array(layer.gate)

    def start(self, hidden: tf.Tensor) -> HaltingState:
        """Gives the sums before the first step, for [tokens, hidden_size]."""
        result = tf.zeros_like(hidden, tf.float32)
        zeros = tf.zeros_like(result[:, 0])
        return HaltingState(result, zeros, tf.ones_like(zeros), zeros, zeros)

    def update(self, step: tf.Tensor | int, before: tf.Tensor, after: tf.Tensor, sums: HaltingState) -> HaltingState:
        """Gives the sums after a step that made `after` of `before`, both [tokens, hidden_size]."""
        return updated(self.config, self._probability, step, before, after, sums)

    def _probability(self, state: tf.Tensor) -> tf.Tensor:
        # No product of matrices: a token's bits must not depend on how many tokens there are.
        return self.gate * tf.sigmoid(tf.reduce_sum(state * self.kernel, axis=1) + self.bias)

"""What is done between the steps of an encoder with extensions over depth: the twins of `albert_tf.layers`' own."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from albert_tf.extensions.halting import HaltingState
from albert_tf.extensions.hyper_connections import EPSILON
from albert_tf.extensions.step_signal import sinusoids
from serving.inference.dense import array, variable


class StepSignal:
    """Adds the vector of a step to every token."""

    def __init__(self, layer, dtype: tf.DType):
        config, self.dtype = layer.config, dtype
        if config.step_signal == "learned":
            self.table = array(layer.table)
        else:
            self.table = sinusoids(config.num_steps, config.hidden_size) * array(layer.gate)

    def __call__(self, hidden: tf.Tensor, step: tf.Tensor | int) -> tf.Tensor:
        """Takes and gives [tokens, hidden_size]."""
        return hidden + tf.constant(self.table, self.dtype)[step]


class Sums:
    """Sums of each token's vectors, of which its gates are the weights.

    A product of matrices for every token takes oneDNN a microsecond, whatever their size. So a few tokens share one,
    with zeros where vectors are another token's.

    Args:
        parts: what each gate counts for, by kind of vectors: float32 [steps, gates, sums, vectors of a token].
        dtype: of the vectors.
        together: how many tokens share a product; there must be a multiple of them.
    """

    def __init__(self, parts: Sequence[np.ndarray], dtype: tf.DType, together: int):
        self.dtype, self.together, (steps, gates, self.sums, _) = dtype, together, parts[0].shape
        own = np.eye(together, dtype=np.float32)
        table = np.concatenate([np.tile(part, together) for part in parts], axis=-1)
        mask = np.concatenate([np.repeat(own, part.shape[-1], axis=1) for part in parts], axis=1)
        self.table, self.mask = table.reshape(steps, gates, -1), np.tile(mask, self.sums)

    def __call__(self, step: tf.Tensor | int, gates: tf.Tensor, *vectors: tf.Tensor) -> tf.Tensor:
        """Sums up.

        Args:
            step: its number.
            gates: float32 [tokens, gates].
            *vectors: of each kind, [tokens, vectors of a token, width].

        Returns:
            [tokens, sums, width]
        """
        width = vectors[0].shape[-1]
        weights = tf.reshape(tf.matmul(gates, tf.gather(self.table, step)), [-1, *self.mask.shape])
        weights = tf.cast(weights * self.mask, self.dtype)
        weights = tf.reshape(weights, [-1, self.together * self.sums, self.mask.shape[1] // self.sums])
        groups = [tf.reshape(part, [-1, self.together * part.shape[1], width]) for part in vectors]
        return tf.reshape(tf.matmul(weights, tf.concat(groups, axis=1)), [-1, self.sums, width])


class HyperConnections(tf.Module):
    """Several residual streams, [tokens, streams, hidden_size], read and written by gates of each step.

    Gates and norm are float32. What the streams' content weighs in the gates is folded into the kernel, with the root
    of the norm's size.
    """

    def __init__(self, layer, dtype: tf.DType, together: int):
        super().__init__()
        self.dtype, self.streams, self.width = dtype, layer.config.hyper_connections, layer.config.hidden_size
        size = self.streams * self.width
        scale = np.repeat(array(layer.scale), self.streams, axis=1) * np.sqrt(size)
        self.kernel = variable(array(layer.kernel) * scale[:, np.newaxis], dtype, "kernel")
        self.bias, self.signal, self.epsilon = array(layer.bias), array(layer.signal), EPSILON * size
        pre, post, res = np.split(np.eye(3 * self.streams, dtype=np.float32), 3, axis=1)
        gate = array(layer.gate)[:, np.newaxis, np.newaxis, np.newaxis]
        reads = np.tile(pre[:, np.newaxis], (len(gate), 1, 1, 1))
        keeps = gate * (res[:, :, np.newaxis] * np.eye(self.streams, dtype=np.float32))
        writes = np.tile(2 * post[:, :, np.newaxis], (len(gate), 1, 1, 1))
        self.reading = Sums([reads], dtype, together)
        self.writing = Sums([keeps, writes], dtype, together)
        self.writing_summary = Sums([keeps, writes], dtype, 1)

    def start(self, hidden: tf.Tensor) -> tf.Tensor:
        """Makes the first streams of [tokens, hidden_size]."""
        return tf.tile(hidden[:, tf.newaxis], [1, self.streams, 1])

    def read(self, step: tf.Tensor | int, streams: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Gives a step's input [tokens, hidden_size], and the gates float32 [tokens, 3 * streams]."""
        flat = tf.reshape(streams, [-1, self.streams * self.width])
        norm = tf.cast(tf.raw_ops.EuclideanNorm(input=flat, axis=[1], keep_dims=True), tf.float32)
        products = tf.cast(tf.matmul(flat, tf.gather(self.kernel, step)), tf.float32)
        size = tf.sqrt(tf.square(norm) + self.epsilon)
        gates = tf.sigmoid(products / size + tf.gather(self.bias, step))
        return tf.reshape(self.reading(step, gates, streams), [-1, self.width]), gates

    def write(
        self, step: tf.Tensor | int, streams: tf.Tensor, output: tf.Tensor, gates: tf.Tensor, only_summary: bool = False
    ) -> tf.Tensor:
        """Gives the streams after a step whose block gave `output`, [tokens, hidden_size].

        only_summary: there is but one token of each row, of which there may be any number.
        """
        written = output + tf.gather(tf.constant(self.signal, self.dtype), step)
        writing = self.writing_summary if only_summary else self.writing
        return writing(step, gates, streams, written[:, tf.newaxis])

    def mean(self, streams: tf.Tensor) -> tf.Tensor:
        """Gives what the streams come to: [tokens, hidden_size]."""
        return tf.cast(tf.reduce_mean(tf.cast(streams, tf.float32), axis=1), self.dtype)


class Halting:
    """The sums of adaptive computation time, float32, by which every token takes as many steps as it needs."""

    def __init__(self, layer):
        self.extension, self.last = layer.extension, layer.config.num_steps - 1
        self.kernel, self.bias, self.gate = array(layer.kernel), array(layer.bias), array(layer.gate)

    def start(self, hidden: tf.Tensor) -> HaltingState:
        """Gives the sums before the first step, for [tokens, hidden_size]."""
        result = tf.zeros_like(hidden, tf.float32)
        zeros = tf.zeros_like(result[:, 0])
        return HaltingState(result, zeros, tf.ones_like(zeros), zeros, zeros)

    def update(self, step: tf.Tensor | int, before: tf.Tensor, after: tf.Tensor, sums: HaltingState) -> HaltingState:
        """Gives the sums after a step that made `after` of `before`, both [tokens, hidden_size]."""
        return self.extension.updated(self._probability, tf.equal(step, self.last), before, after, sums)

    def _probability(self, state: tf.Tensor) -> tf.Tensor:
        # No product of matrices: a token's bits must not depend on how many tokens there are.
        return self.gate * tf.sigmoid(tf.reduce_sum(state * self.kernel, axis=1) + self.bias)

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.extensions.hyper_connections import EPSILON
from albert_tf.layers.block import Step
from albert_tf.layers.depth import Runner
from serving.inference.kernels import ExportedExtension, KernelSettings
from serving.inference.layers import variable

# Tokens whose streams share a product; where padding is skipped their number is rounded up to multiples of it.
_TOGETHER = 4


class ExportedHyperConnections(ExportedExtension):
    """Hyper-connections over states [tokens, streams, hidden_size]; the gates differ by step.

    The stored kernel is the product of `scale`, the gates' weights and the square root of streams * hidden_size.
    """

    def __init__(self, extension: Any, encoder: Any, settings: KernelSettings):
        super().__init__(extension, encoder, settings)
        dtype, together = settings.state_dtype, _TOGETHER if settings.skips_padding else 1
        self.dtype, self.streams, self.width = dtype, extension.hyper_connections, self.config.hidden_size
        weights = self.weights
        size = self.streams * self.width
        scale = np.repeat(weights["scale"], self.streams, axis=1) * np.sqrt(size)
        self.kernel = variable(weights["kernel"] * scale[:, np.newaxis], dtype, "kernel")
        self.bias, self.signal, self.epsilon = weights["bias"], weights["signal"], EPSILON * size
        pre, post, res = np.split(np.eye(3 * self.streams, dtype=np.float32), 3, axis=1)
        gate = weights["gate"][:, np.newaxis, np.newaxis, np.newaxis]
        reads = np.tile(pre[:, np.newaxis], (len(gate), 1, 1, 1))
        keeps = gate * (res[:, :, np.newaxis] * np.eye(self.streams, dtype=np.float32))
        writes = np.tile(2 * post[:, :, np.newaxis], (len(gate), 1, 1, 1))
        self.reading = Sums([reads], dtype, together)
        self.writing = Sums([keeps, writes], dtype, together)
        self.writing_summary = Sums([keeps, writes], dtype, 1)

    def around(self, runner: Runner) -> Runner:
        return _ExportedConnections(runner, self)

    def read(self, step: Tensor, streams: Tensor) -> tuple[Tensor, Tensor]:
        """Returns a step's input [tokens, hidden_size], and the gates float32 [tokens, 3 * streams]."""
        flat = tf.reshape(streams, [-1, self.streams * self.width])
        norm = tf.cast(tf.raw_ops.EuclideanNorm(input=flat, axis=[1], keep_dims=True), tf.float32)
        products = tf.cast(tf.matmul(flat, tf.gather(self.kernel, step)), tf.float32)
        size = tf.sqrt(tf.square(norm) + self.epsilon)
        gates = tf.sigmoid(products / size + tf.gather(self.bias, step))
        return tf.reshape(self.reading(step, gates, streams), [-1, self.width]), gates

    def write(self, step: Tensor, streams: Tensor, output: Tensor, gates: Tensor, only_summary: bool = False) -> Tensor:
        written = output + tf.gather(tf.constant(self.signal, self.dtype), step)
        writing = self.writing_summary if only_summary else self.writing
        return writing(step, gates, streams, written[:, tf.newaxis])

    def mean(self, streams: Tensor) -> Tensor:
        return tf.cast(tf.reduce_mean(tf.cast(streams, tf.float32), axis=1), self.dtype)


class _ExportedConnections(Runner):
    def __init__(self, inner: Runner, own: ExportedHyperConnections):
        super().__init__(inner)
        self.own = own

    def begin(self, hidden: Tensor) -> Tensor:
        return tf.tile(self.inner.begin(hidden)[:, tf.newaxis], [1, self.own.streams, 1])

    def step(self, step: Step, state: Tensor) -> tuple[Tensor, Tensor]:
        hidden, gates = self.own.read(step.number, state)
        output, read = self.inner.step(step, hidden)
        if step.only_summary:
            state, gates = self.rows.summary_tokens(state), self.rows.summary_tokens(gates)
        return self.own.write(step.number, state, output, gates, step.only_summary), read

    def carried(self, state: Tensor) -> Tensor:
        return self.own.mean(state)

    def result(self, state: Tensor) -> Tensor:
        return self.own.mean(state)


class Sums:
    """Computes weighted sums of each token's vectors; weights are linear functions of the token's gates.

    Each matrix product computes `together` tokens. `parts` has one array per argument of `vectors`: coefficients
    float32 [steps, gates, sums, vectors of a token].
    """

    def __init__(self, parts: Sequence[np.ndarray], dtype: tf.DType, together: int):
        self.dtype, self.together, (steps, gates, self.sums, _) = dtype, together, parts[0].shape
        own = np.eye(together, dtype=np.float32)
        table = np.concatenate([np.tile(part, together) for part in parts], axis=-1)
        mask = np.concatenate([np.repeat(own, part.shape[-1], axis=1) for part in parts], axis=1)
        self.table, self.mask = table.reshape(steps, gates, -1), np.tile(mask, self.sums)

    def __call__(self, step: Tensor, gates: Tensor, *vectors: Tensor) -> Tensor:
        """Returns [tokens, sums, width] from gates [tokens, gates] and vectors [tokens, vectors of a token, width]."""
        width = vectors[0].shape[-1]
        weights = tf.reshape(tf.matmul(gates, tf.gather(self.table, step)), [-1, *self.mask.shape])
        weights = tf.cast(weights * self.mask, self.dtype)
        weights = tf.reshape(weights, [-1, self.together * self.sums, self.mask.shape[1] // self.sums])
        groups = [tf.reshape(part, [-1, self.together * part.shape[1], width]) for part in vectors]
        return tf.reshape(tf.matmul(weights, tf.concat(groups, axis=1)), [-1, self.sums, width])

"""Hyper-connections between the steps: several residual streams, read, written and kept by gates of each step.

Source: Hyperloop Transformers (arXiv:2604.21254), with diagonal mixing. A step with the block F does, for each token,

    z = rms_norm(all streams, one after another)
    pre = sigmoid(a1 W1 z + b1), post = 2 sigmoid(a2 W2 z + b2), res = gate sigmoid(a3 W3 z + b3)
    x = sum over s of pre_s stream_s, then stream_s = res_s stream_s + post_s (F(x) + e)

from streams that are all the embeddings to the mean of the last ones. `gate` is ours. At 0, with W = 0, e = 0,
b2 = 0 and b1 such that pre is 1 / streams, every stream becomes F(x): plain ALBERT.
"""

import math
from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.depth import of_step
from albert_tf.layers.fused import fuse

EPSILON = 1e-6
# How much the content of the streams weighs in the gates at first: a1, a2 and a3.
_SCALE = 0.01
# Equal streams get equal gradients and would stay equal for ever: each begins to forget at a rate of its own.
_SPREAD = 2.0


def start_bias(streams: int) -> np.ndarray:
    """Gives b1, b2 and b3 in one row, float32 [3 * streams], as they begin."""
    pre = np.full(streams, -math.log(streams - 1))
    return np.concatenate([pre, np.zeros(streams), np.linspace(-_SPREAD, _SPREAD, streams)]).astype("float32")


class HyperConnections(keras.layers.Layer):
    """Holds the weights of every step: kernel [steps, streams * hidden_size, 3 * streams] and what is smaller.

    The streams travel as [tokens, streams, hidden_size].
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any):
        super().__init__(**kwargs)
        self.config, self.streams = config, config.hyper_connections

    def build(self, input_shape: Any = None) -> None:
        steps, streams, width = self.config.num_steps, self.streams, self.config.hidden_size
        constant = keras.initializers.Constant
        self.kernel = self.add_weight(name="kernel", shape=(steps, streams * width, 3 * streams), initializer="zeros")

        def small(name: str, shape: tuple, start: float | str) -> Any:
            initializer = start if isinstance(start, str) else constant(start)
            return self.add_weight(name=name, shape=(steps, *shape), initializer=initializer, autocast=False)

        self.scale, self.bias = small("scale", (3,), _SCALE), small("bias", (3 * streams,), "zeros")
        self.bias.assign(np.tile(start_bias(streams), (steps, 1)))
        self.gate, self.signal = small("gate", (), self.config.gate_init), small("signal", (width,), "zeros")

    def start(self, hidden: Tensor) -> Tensor:
        """Makes all streams of the first: [tokens, hidden_size] to [tokens, streams, hidden_size]."""
        return ops.repeat(hidden[:, None], self.streams, axis=1)

    def read(self, step: Tensor, streams: Tensor) -> tuple[Tensor, Tensor]:
        """Gives the block's input [tokens, hidden_size], and post and res, float32 [tokens, 2 * streams]."""
        flat = ops.reshape(streams, (-1, self.streams * self.config.hidden_size))
        products = ops.matmul(flat, ops.cast(of_step(self.kernel, step), flat.dtype))
        return _read(streams, products, *(of_step(part, step) for part in (self.scale, self.bias, self.gate)))

    def write(self, step: Tensor, streams: Tensor, output: Tensor, gates: Tensor) -> Tensor:
        """Gives the streams after a step.

        Args:
            step: its number.
            streams: those that it read.
            output: the block's, [tokens, hidden_size].
            gates: as `read` gave them.
        """
        return _write(streams, output, of_step(self.signal, step), gates)

    def mean(self, streams: Tensor) -> Tensor:
        """Gives what the streams come to: [tokens, hidden_size]."""
        return ops.cast(ops.mean(ops.cast(streams, "float32"), axis=1), streams.dtype)


@fuse
def _read(streams: Tensor, products: Tensor, scale: Tensor, bias: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    count, exact = streams.shape[1], ops.cast(streams, "float32")
    # The norm has no weights, so it is a factor of each token's products.
    factor = ops.rsqrt(ops.mean(ops.square(exact), axis=(1, 2)) + EPSILON)[:, None]
    opened = ops.sigmoid(ops.cast(products, "float32") * factor * ops.repeat(scale, count) + bias)
    pre, post, res = opened[:, :count], 2 * opened[:, count : 2 * count], gate * opened[:, 2 * count :]
    hidden = ops.sum(pre[:, :, None] * exact, axis=1)
    return ops.cast(hidden, streams.dtype), ops.concatenate([post, res], axis=-1)


@fuse
def _write(streams: Tensor, output: Tensor, signal: Tensor, gates: Tensor) -> Tensor:
    count = streams.shape[1]
    post, res = gates[:, :count, None], gates[:, count:, None]
    written = post * (ops.cast(output, "float32") + signal)[:, None]
    return ops.cast(res * ops.cast(streams, "float32") + written, streams.dtype)

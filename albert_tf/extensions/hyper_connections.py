"""Hyper-connections: several residual streams between steps, with gates for each step.

Source: Hyperloop Transformers (arXiv:2604.21254), with diagonal mixing. For each token, a step with the block F does

    z = rms_norm(all streams, one after another)
    pre = sigmoid(a1 W1 z + b1), post = 2 sigmoid(a2 W2 z + b2), res = gate sigmoid(a3 W3 z + b3)
    x = sum over s of pre_s stream_s, then stream_s = res_s stream_s + post_s (F(x) + e)

The streams begin as the embeddings; the result is the mean of the final streams. `e` is learned for each step. `gate`
is not in the paper. If gate, W, e and b2 are 0 and b1 makes pre 1 / streams, all streams become F(x): plain ALBERT.
"""

import dataclasses
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import fuse
from albert_tf.extension import GATE, Extension, RowCost, Weight, WeightLayer
from albert_tf.layers.block import Step
from albert_tf.layers.depth import Runner, of_step
from albert_tf.registry import Weights
from tfrecords.base.errors import UserError

EPSILON = 1e-6
# Initial weights of the streams' content in the gates: a1, a2 and a3.
_SCALE = 0.01
# Equal streams would get equal gradients forever: each begins with another decay rate.
_SPREAD = 2.0


@dataclasses.dataclass(frozen=True)
class HyperConnections(Extension):
    """Connects the steps by several residual streams. The state is [tokens, streams, hidden_size].

    Attributes:
        hyper_connections: number of streams, 2 or more; 0 for none.
        gate_init: the gates' initial value; at 0 the model equals one without this extension.
    """

    name, order, begins_plain, changes_input = "hyper_connections", 1, True, True
    limits = GATE | {"hyper_connections": ("at most 64", lambda value: value <= 64)}
    hyper_connections: int = 0
    gate_init: float = 0.0

    def check(self, config: Any) -> None:
        if self.hyper_connections == 1:
            raise UserError("hyper_connections 1 leaves no streams to choose from; give 2 or more, or 0 for none")

    def weight_layers(self, config: Any, owner: str, steps: tuple[int, ...]) -> list[WeightLayer]:
        if owner != "encoder":
            return []
        count, streams, width = config.num_steps, self.hyper_connections, config.hidden_size
        bias = np.tile(start_bias(streams), (count, 1))
        constant, small = keras.initializers.Constant, {"per_step": True, "autocast": False}
        weights = {
            "kernel": Weight((count, streams * width, 3 * streams), per_step=True),
            "scale": Weight((count, 3), constant(_SCALE), **small),
            "bias": Weight((count, 3 * streams), lambda shape, dtype=None: ops.convert_to_tensor(bias, dtype), **small),
            "gate": Weight((count,), constant(self.gate_init), **small),
            "signal": Weight((count, width), **small),
        }
        return [WeightLayer("connections", "depth_connections", "connections", weights)]

    def row_cost(self, config: Any, targets: int, cost: RowCost) -> RowCost:
        streams, hidden = self.hyper_connections, config.hidden_size
        # The gates' matrices; then each stream is read, scaled and written once.
        products = config.num_steps * (3 * streams * streams * hidden + 3 * streams * hidden)
        return cost._replace(products=cost.products + products, streams=streams)

    def around(self, runner: Runner, weights: Weights) -> Runner:
        return _Connected(runner, self.hyper_connections, weights)


class _Connected(Runner):
    def __init__(self, inner: Runner, streams: int, weights: Weights):
        super().__init__(inner)
        self.streams, self.weights = streams, weights

    def begin(self, hidden: Tensor) -> Tensor:
        return ops.repeat(self.inner.begin(hidden)[:, None], self.streams, axis=1)

    def step(self, step: Step, state: Tensor) -> tuple[Any, Tensor]:
        kernel, scale, bias, gate, signal = (
            of_step(self.weights[name], step.number) for name in ("kernel", "scale", "bias", "gate", "signal")
        )
        flat = ops.reshape(state, (-1, self.streams * self.config.hidden_size))
        hidden, gates = _read(state, ops.matmul(flat, ops.cast(kernel, flat.dtype)), scale, bias, gate)
        output, read = self.inner.step(step, hidden)
        if step.only_summary:
            state, gates = self.rows.summary_tokens(state), self.rows.summary_tokens(gates)
        return _write(state, output, signal, gates), read

    def carried(self, state: Tensor) -> Tensor:
        return ops.cast(ops.mean(ops.cast(state, "float32"), axis=1), state.dtype)

    def result(self, state: Tensor) -> Tensor:
        return self.carried(state)


def start_bias(streams: int) -> np.ndarray:
    """Returns the initial biases of pre, post and res in one row, float32 [3 * streams]."""
    pre = np.full(streams, -math.log(streams - 1))
    return np.concatenate([pre, np.zeros(streams), np.linspace(-_SPREAD, _SPREAD, streams)]).astype("float32")


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

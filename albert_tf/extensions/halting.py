"""Adaptive computation time: every token takes as many steps as it needs (Graves 2016, arXiv:1603.08983).

At each step, a token has the halting probability p = gate * sigmoid(state @ kernel + bias). It halts when the sum of p
reaches 1 - threshold, or at the last step. The halting step has the weight R = 1 - the sum of earlier p; earlier
steps have the weight p.

"act" (Graves, section 2.1): p is computed from the state after the step; the result is the sum over t of weight_t *
state_t. "act_t2t" (tensor2tensor research/universal_transformer_util.py, act_type "basic"): p is computed from the
step's input; result = state * weight + result * (1 - weight), starting at 0.

Halted tokens are still attended to. With gate 0, the result is the last state: plain ALBERT.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.config.extension import GATE, Extension, RowCost, Weight, WeightLayer
from albert_tf.config.registry import Weights
from albert_tf.layers.block import Step
from albert_tf.layers.depth import Runner


class HaltingState(NamedTuple):
    """Sums over the steps so far, float32: `result` is [tokens, hidden_size], the others are [tokens].

    `total` sums the halting probabilities without the halting step's. When a token halts, `running` changes from 1 to
    0, and `remainder` from 0 to 1 - `total`.
    """

    result: Tensor
    total: Tensor
    running: Tensor
    steps: Tensor
    remainder: Tensor


@keras.saving.register_keras_serializable(package="albert_tf")
class _FromZeroToOne(keras.constraints.Constraint):
    # A smooth function instead of clipping would have no gradient at 0.
    def __call__(self, weight: Tensor) -> Tensor:
        return ops.clip(weight, 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Halting(Extension):
    """Lets tokens stop at different steps.

    Attributes:
        halting: "none", "act" (Graves) or "act_t2t" (tensor2tensor).
        halting_threshold: a token halts when its probabilities add up to 1 minus this.
        ponder_cost: factor of a loss term: the mean over tokens of steps plus remainder.
        gate_init: the gate's initial value; at 0 the model equals one without this extension.
    """

    name, order, begins_plain, outputs, for_litert = "halting", 2, True, ("steps",), False
    packs = False
    no_exits = "each token stops by itself"
    limits = GATE | {"halting_threshold": ("below 1", lambda value: value < 1)}
    choices = {"halting": ("none", "act", "act_t2t")}
    halting: str = "none"
    halting_threshold: float = 0.01
    ponder_cost: float = 0.01
    gate_init: float = 0.0

    def metrics(self) -> tuple[str, ...]:
        return ("ponder", "halting_steps")

    def weight_layers(self, config: Any, owner: str, steps: tuple[int, ...]) -> list[WeightLayer]:
        if owner != "encoder":
            return []
        constant = keras.initializers.Constant
        weights = {
            "kernel": Weight((config.hidden_size,), "normal", autocast=False),
            "bias": Weight((), constant(1.0), autocast=False),
            "gate": Weight((), constant(self.gate_init), autocast=False, constraint=_FromZeroToOne()),
        }
        return [WeightLayer("halting", "depth_halting", "depth_layers/halting", weights)]

    def evaluated_loss(self, results: Mapping[str, Any]) -> Any:
        return self.ponder_cost * results.get("ponder", 0.0)

    def row_cost(self, config: Any, targets: int, cost: RowCost) -> RowCost:
        return cost._replace(products=cost.products + config.num_steps * 2 * config.hidden_size)

    def around(self, runner: Runner, weights: Weights) -> Runner:
        return HaltedRunner(runner, self, weights)

    def updated(
        self, probability: Any, is_last: Tensor, before: Tensor, after: Tensor, sums: HaltingState
    ) -> HaltingState:
        is_graves, after = self.halting == "act", ops.cast(after, "float32")
        halts = probability(after if is_graves else ops.cast(before, "float32"))
        ends = sums.total + halts >= 1 - self.halting_threshold
        ends = sums.running * ops.cast(ops.logical_or(ends, is_last), "float32")
        goes_on, remainder = sums.running - ends, 1 - sums.total
        weight = (ends * remainder + goes_on * halts)[:, None]
        so_far = sums.result if is_graves else sums.result * (1 - weight)
        return HaltingState(
            result=so_far + weight * after,
            total=sums.total + goes_on * halts,
            running=goes_on,
            steps=sums.steps + sums.running,
            remainder=sums.remainder + ends * remainder,
        )


def first_sums(hidden: Tensor) -> HaltingState:
    """Returns the HaltingState before the first step."""
    result = ops.zeros_like(ops.cast(hidden, "float32"))
    zeros = ops.zeros_like(result[:, 0])
    return HaltingState(result, zeros, ops.ones_like(zeros), zeros, zeros)


class HaltedRunner(Runner):
    """Wraps a runner; its state is the tuple (inner state, HaltingState)."""

    def __init__(self, inner: Runner, extension: Halting, weights: Weights):
        super().__init__(inner)
        self.extension, self.weights = extension, weights

    def begin(self, hidden: Tensor) -> tuple[Any, HaltingState]:
        return self.inner.begin(hidden), first_sums(hidden)

    def step(self, step: Step, state: tuple) -> tuple[Any, Tensor]:
        after, read = self.inner.step(step, state[0])
        is_last = ops.equal(step.number, self.config.num_steps - 1)
        carried = self.inner.carried(after)
        return (after, self.extension.updated(self._probability, is_last, read, carried, state[1])), read

    def _probability(self, state: Tensor) -> Tensor:
        weights = self.weights
        return weights["gate"] * ops.sigmoid(ops.matmul(state, weights["kernel"]) + weights["bias"])

    def carried(self, state: tuple) -> Tensor:
        return self.inner.carried(state[0])

    def result(self, state: tuple) -> Tensor:
        return state[1].result

    def is_open(self, state: tuple) -> Tensor:
        return ops.any(state[1].running > 0)

    def report(self, state: tuple) -> tuple[dict[str, Tensor], list[Tensor], dict[str, Tensor]]:
        outputs, losses, values = self.inner.report(state[0])
        steps, rows = state[1].steps, self.rows
        counts = ops.maximum(rows.sum(ops.ones_like(steps)), 1.0)
        ponder = rows.sum(steps + state[1].remainder) / counts
        outputs = outputs | {"steps": ops.cast(rows.rectangle(steps), "int32")}
        losses = [*losses, self.extension.ponder_cost * ops.mean(ponder)]
        return outputs, losses, values | {"ponder": ponder, "halting_steps": rows.sum(steps) / counts}

"""Adaptive computation time: every token takes as many steps as it needs (Graves 2016, arXiv:1603.08983).

At each step a token halts with probability p = gate * sigmoid(state kernel + bias). It has halted once its
probabilities add up to 1 - threshold, or at the plan's last step, whose weight is the remainder R = 1 - the sum before.

"act", section 2.1 there: p of the state after the step, and the result is sum over t of weight_t state_t.
"act_t2t", tensor2tensor's (research/universal_transformer_util.py, act_type "basic"): p of what the step reads, and the
result runs along: new = state * weight + result * (1 - weight), from 0.

In both a halted token goes on being attended to. With the gate at 0 all weight is the last state's: plain ALBERT.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.dense import initializer
from albert_tf.layers.measured import MeasuredMean


class HaltingState(NamedTuple):
    """Holds float32 sums of each token: `result` [tokens, hidden_size], the others [tokens].

    Attributes:
        result: of the states so far, by their weights.
        total: of the probabilities before the step at which the token halts.
        running: 1 until it halts.
        steps: N, how many it took.
        remainder: R.
    """

    result: Tensor
    total: Tensor
    running: Tensor
    steps: Tensor
    remainder: Tensor


@keras.saving.register_keras_serializable(package="albert_tf")
class _FromZeroToOne(keras.constraints.Constraint):
    """Clips after an update: a smooth function from 0 to 1, or a clip of the gate itself, has no gradient at 0."""

    def __call__(self, weight: Tensor) -> Tensor:
        return ops.clip(weight, 0.0, 1.0)


class Halting(keras.layers.Layer):
    """Holds the weights of the probability to halt, and the means of training and of an evaluation.

    Attributes:
        steps: those that have weights of their own: none.
        means: metrics over tokens that are no padding: ponder, N + R, and steps, N.
    """

    steps = ()

    def __init__(self, config: AlbertConfig, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config
        self.means = [MeasuredMean(name=name) for name in ("ponder", "halting_steps")]
        self._unmeasured: tuple[Tensor, ...] | None = None

    def build(self, input_shape: Any = None) -> None:
        constant = keras.initializers.Constant
        own: dict[str, Any] = {"autocast": False}
        self.kernel = self.add_weight(
            name="kernel", shape=(self.config.hidden_size,), initializer=initializer(self.config), **own
        )
        self.bias = self.add_weight(name="bias", shape=(), initializer=constant(1.0), **own)
        gate = constant(self.config.gate_init)
        self.gate = self.add_weight(name="gate", shape=(), initializer=gate, constraint=_FromZeroToOne(), **own)

    def start(self, hidden: Tensor) -> HaltingState:
        """Gives the sums before the first step, for [tokens, hidden_size]."""
        result = ops.zeros_like(ops.cast(hidden, "float32"))
        zeros = ops.zeros_like(result[:, 0])
        return HaltingState(result, zeros, ops.ones_like(zeros), zeros, zeros)

    def update(self, step: Tensor, before: Tensor, after: Tensor, sums: HaltingState) -> HaltingState:
        """Gives the sums after a step.

        Args:
            step: its number in the plan.
            before: what it read, [tokens, hidden_size].
            after: what it gave.
            sums: those before it.
        """
        return updated(self.config, self._probability, step, before, after, sums)

    def conclude(self, sums: HaltingState, mask: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
        """Gives the loss of pondering, and the steps of each token.

        Args:
            sums: those after the last step.
            mask: [batch, sequence], 0 for padding; or None.
            length: tokens a row.

        Returns:
            ponder_cost times the mean over rows of their tokens' mean N + R, float32; and N, int32 [batch, sequence].
        """
        steps = ops.reshape(sums.steps, (-1, length))
        mask = ops.ones_like(steps) if mask is None else ops.cast(mask, "float32")
        counts = ops.maximum(ops.sum(mask, axis=1), 1.0)
        ponder = ops.sum(mask * (steps + ops.reshape(sums.remainder, (-1, length))), axis=1) / counts
        self._unmeasured = ponder, ops.sum(mask * steps, axis=1) / counts
        return self.config.ponder_cost * ops.mean(ponder), ops.cast(steps, "int32")

    def measure(self) -> None:
        """Adds the last call's rows to the means, in the same graph or trace."""
        if self._unmeasured is not None:
            values, self._unmeasured = self._unmeasured, None
            for mean, value in zip(self.means, values):
                mean.update_state(value)

    def _probability(self, state: Tensor) -> Tensor:
        return self.gate * ops.sigmoid(ops.matmul(state, self.kernel) + self.bias)


def updated(
    config: AlbertConfig, probability: Callable, step: Tensor, before: Tensor, after: Tensor, sums: HaltingState
) -> HaltingState:
    """Gives the sums after a step.

    Args:
        config: of the encoder.
        probability: gives p [tokens] of float32 [tokens, hidden_size].
        step: see `Halting.update`, as for the others.
        before: [tokens, hidden_size].
        after: the same.
        sums: those before the step.
    """
    is_graves, after = config.halting == "act", ops.cast(after, "float32")
    halts = probability(after if is_graves else ops.cast(before, "float32"))
    ends = sums.total + halts >= 1 - config.halting_threshold
    is_last = ops.equal(step, config.num_steps - 1)
    ends = sums.running * ops.cast(ops.logical_or(ends, is_last), "float32")
    goes_on, remainder = sums.running - ends, 1 - sums.total
    weight = (ends * remainder + goes_on * halts)[:, None]
    kept = sums.result if is_graves else sums.result * (1 - weight)
    return HaltingState(
        result=kept + weight * after,
        total=sums.total + goes_on * halts,
        running=goes_on,
        steps=sums.steps + sums.running,
        remainder=sums.remainder + ends * remainder,
    )

"""The Universal Transformer's step signal, which tells a shared block its step."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.base import Tensor
from albert_tf.config.extension import GATE, Extension, Weight, WeightLayer
from albert_tf.config.registry import Weights
from albert_tf.layers.block import Step
from albert_tf.layers.depth import Runner, of_step


@dataclasses.dataclass(frozen=True)
class StepSignal(Extension):
    """Before each step, adds the step's vector to every token.

    "learned": the vectors are a table [steps, hidden_size] that begins at 0. "sinusoid": a fixed table times a learned
    gate.

    Attributes:
        step_signal: "none", "learned" or "sinusoid".
        gate_init: the gate's initial value. 0: the model equals one without this extension; 1: the published form.
    """

    name, begins_plain, changes_input = "step_signal", True, True
    limits = GATE
    choices = {"step_signal": ("none", "learned", "sinusoid")}
    step_signal: str = "none"
    gate_init: float = 0.0

    def weight_layers(self, config: Any, owner: str, steps: tuple[int, ...]) -> list[WeightLayer]:
        if owner != "encoder":
            return []
        weights = {"gate": Weight((), keras.initializers.Constant(self.gate_init))}
        if self.step_signal == "learned":
            weights = {"table": Weight((config.num_steps, config.hidden_size), per_step=True)}
        return [WeightLayer("step_signal", "depth_signal", "depth_layers/step_signal", weights)]

    def around(self, runner: Runner, weights: Weights) -> Runner:
        return _Signalled(runner, self, weights)


class _Signalled(Runner):
    def __init__(self, inner: Runner, extension: StepSignal, weights: Weights):
        super().__init__(inner)
        self.extension, self.weights = extension, weights

    def step(self, step: Step, state: Any) -> tuple[Any, Tensor]:
        if self.extension.step_signal == "learned":
            signal = of_step(self.weights["table"], step.number)
        else:
            table = sinusoids(self.config.num_steps, self.config.hidden_size)
            signal = of_step(ops.convert_to_tensor(table), step.number) * ops.cast(self.weights["gate"], "float32")
        after, _ = self.inner.step(step, read := state + ops.cast(signal, state.dtype))
        return after, read


def sinusoids(steps: int, width: int) -> np.ndarray:
    """Returns float32 [steps, width]: a row per step, sines in the first half and cosines in the second.

    Source: tensor2tensor:layers/common_attention.py, get_timing_signal_1d (arXiv:1807.03819, equation 7).
    """
    count = width // 2
    frequencies = np.power(10000.0, -np.arange(count) / max(count - 1, 1))
    angles = np.arange(steps)[:, np.newaxis] * frequencies
    signal = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return np.pad(signal, ((0, 0), (0, width % 2))).astype("float32")

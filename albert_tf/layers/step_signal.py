"""The Universal Transformer's step signal: what tells a shared block how deep it is."""

from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.depth import of_step


def sinusoids(steps: int, width: int) -> np.ndarray:
    """Computes a row for each step: float32 [steps, width], sines in the first half and cosines in the second.

    Wavelengths are 2 pi times 1 to 10,000, in geometric progression; an odd width ends with a 0.
    Source: tensor2tensor:layers/common_attention.py, get_timing_signal_1d (Dehghani et al. 2018, equation 7).
    """
    count = width // 2
    frequencies = np.power(10000.0, -np.arange(count) / max(count - 1, 1))
    angles = np.arange(steps)[:, np.newaxis] * frequencies
    signal = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return np.pad(signal, ((0, 0), (0, width % 2))).astype("float32")


class StepSignal(keras.layers.Layer):
    """Adds a vector of its own to every token before each step.

    "learned": a table [steps, hidden_size] that begins at 0. "sinusoid": a fixed one times a learned gate, which begins
    at `gate_init`.
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config

    def build(self, input_shape: Any = None) -> None:
        config = self.config
        shape = (config.num_steps, config.hidden_size)
        if config.step_signal == "learned":
            self.table = self.add_weight(name="table", shape=shape, initializer="zeros")
        else:
            start = keras.initializers.Constant(config.gate_init)
            self.gate = self.add_weight(name="gate", shape=(), initializer=start)

    def signal(self, step: Tensor) -> Tensor:
        """Gives what is added before a step: [hidden_size]."""
        if self.config.step_signal == "learned":
            return of_step(self.table, step)
        table = sinusoids(self.config.num_steps, self.config.hidden_size)
        return of_step(ops.convert_to_tensor(table), step) * ops.cast(self.gate, "float32")

    def call(self, hidden: Tensor, step: Tensor) -> Tensor:
        """Adds the step's signal to [tokens, hidden_size]."""
        return hidden + ops.cast(self.signal(step), hidden.dtype)

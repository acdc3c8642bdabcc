"""The memory that a batch's rows pass on to the next batch."""

from typing import Any

import keras
import numpy as np
from keras import ops

from albert_tf.base import Tensor


class RowMemory(keras.metrics.Metric):
    """Holds a batch's memory for the next batch, once `begin` was called.

    As a metric, it is updated on every backend and not saved as a weight. A reset zeroes the memory unless it `lasts`.

    >>> memory = RowMemory("memory", lasts=True)
    >>> memory.begin((1, 2, 4, 8, 16))
    >>> memory.update_state(ops.ones((2, 4, 8, 16)))
    >>> float(ops.mean(memory.result_of_turn()))
    1.0
    """

    def __init__(self, name: str, lasts: bool):
        super().__init__(name=name, dtype="float32")
        self._lasts = lasts
        self._rows: Any = None

    @property
    def is_kept(self) -> bool:
        return self._rows is not None

    def begin(self, shape: tuple[int, ...]) -> None:
        """Creates the memory, zeros [turns, steps, batch, memory, hidden_size], or checks an existing one's shape."""
        if self._rows is None:
            self._rows = self.add_variable(shape, "zeros", name="rows")
        elif tuple(self._rows.shape) != shape:
            raise ValueError(f"memory of shape {tuple(self._rows.shape)} cannot go on with {shape}")

    def begin_with(self, value: Any) -> None:
        value = np.array(value, "float32")
        self.begin(value.shape)
        self._rows.assign(value)

    def result_of_turn(self) -> Tensor:
        return self._rows[0]

    def update_state(self, memory: Tensor) -> None:
        memory = ops.cast(memory, "float32")
        self._rows.assign(ops.concatenate([self._rows[1:], memory[None]]))

    def result(self) -> dict[str, Any]:
        return {}

    def reset_state(self) -> None:
        if not self._lasts:
            super().reset_state()

    def to_numpy(self) -> np.ndarray:
        return ops.convert_to_numpy(self._rows)

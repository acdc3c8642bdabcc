"""Metrics of what a walk over depth does, which a model shows once it measures them."""

from typing import Any

import keras


class MeasuredMean(keras.metrics.Mean):
    """Gives the mean of what was measured; a model that never measures shows no figure, where a Mean would show 0."""

    _is_measured = False

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        self._is_measured = True
        super().update_state(values, sample_weight)

    def result(self) -> Any:
        return super().result() if self._is_measured else {}

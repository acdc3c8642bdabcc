import statistics
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.optimizers.adam_weight_decay import AdamWeightDecay, matches_any


@keras.saving.register_keras_serializable("albert_tf")
class Lamb(AdamWeightDecay):
    """Scales each variable's AdamWeightDecay update by the trust ratio |w| / |update|.

    As in google-research/albert:lamb_optimizer.py:30-143, the decay term is inside the ratio, which is not clamped. The
    ratio is 1 for variables whose paths match the regular expressions `exclude_from_layer_adaptation`, by default those
    excluded from weight decay. `keras.optimizers.Lamb` corrects the bias of the moments, decays outside the ratio and
    adapts every variable.

    Extensions' weights (paths in `may_begin_at_zero`) may begin at 0, where a small ratio would keep them. Their |w|
    counts as at least the norm for the standard deviation `least_deviation` (gamma_l of phi in Algorithm 2 of You et
    al. 2020, arXiv:1904.00962). In variables with three axes, each index of the first (a step) has its own ratio.

    >>> weight = keras.Variable([3.0, 4.0], name="kernel")
    >>> optimizer = Lamb(learning_rate=0.1, weight_decay=0.0)
    >>> optimizer.apply([ops.convert_to_tensor([1.0, 1.0])], [weight])
    >>> [round(float(value), 3) for value in ops.convert_to_numpy(weight)]  # moved by a tenth of its length, 5
    [2.646, 3.646]
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1.76e-3,
        exclude_from_layer_adaptation: Sequence[str] | None = None,
        may_begin_at_zero: Sequence[str] = ("depth_",),
        least_deviation: float = 0.02,
        name: str = "lamb",
        **kwargs: Any,
    ):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        excluded = exclude_from_layer_adaptation
        self.exclude_from_layer_adaptation = list(self.exclude_from_weight_decay if excluded is None else excluded)
        self.may_begin_at_zero, self.least_deviation = list(may_begin_at_zero), least_deviation

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._adapted = [not matches_any(variable.path, self.exclude_from_layer_adaptation) for variable in variables]
        self._may_begin_at_zero = [matches_any(variable.path, self.may_begin_at_zero) for variable in variables]
        self._ratios = [self.add_shown_variable("trust_ratio") if adapted else None for adapted in self._adapted]

    def adapt(self, update: Tensor, variable: Tensor, index: int) -> Tensor:
        if not self._adapted[index]:
            return update
        if self._may_begin_at_zero[index]:
            ratio = self._ratio_by_step(update, variable)
            self.assign(self._ratios[index], ops.mean(ratio))
            return update * ratio
        # `norm` takes two axes at most; segment embeddings of relative attention have three.
        weight_norm, update_norm = (
            ops.norm(values if len(values.shape) < 3 else ops.reshape(values, (-1,))) for values in (variable, update)
        )
        defined = ops.logical_and(weight_norm > 0, update_norm > 0)
        # The inner `where` keeps 0/0 out of the graph.
        ratio = ops.where(defined, weight_norm / ops.where(defined, update_norm, 1.0), 1.0)
        self.assign(self._ratios[index], ratio)
        return update * ratio

    def _ratio_by_step(self, update: Tensor, variable: Tensor) -> Tensor:
        axes = (1, 2) if len(variable.shape) == 3 else None
        weight_size, update_size = (
            ops.sqrt(ops.mean(ops.square(values), axis=axes, keepdims=True)) for values in (variable, update)
        )
        return ops.maximum(weight_size, self.least_deviation) / ops.where(update_size > 0, update_size, 1.0)

    def figures(self) -> dict[str, float]:
        """Returns AdamWeightDecay's figures, and the least, median and largest trust ratio."""
        ratios = [float(ops.convert_to_numpy(ratio)) for ratio in self._ratios if ratio is not None]
        values = (min(ratios), statistics.median(ratios), max(ratios)) if ratios else ()
        return super().figures() | dict(zip(("trust_ratio_min", "trust_ratio_median", "trust_ratio_max"), values))

    def get_config(self) -> dict:
        return super().get_config() | {
            "exclude_from_layer_adaptation": self.exclude_from_layer_adaptation,
            "may_begin_at_zero": self.may_begin_at_zero,
            "least_deviation": self.least_deviation,
        }

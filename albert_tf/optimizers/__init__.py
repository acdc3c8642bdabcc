"""ALBERT's optimizers and learning-rate schedule, and Muon."""

from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.optimizers.adam_weight_decay import AdamWeightDecay
from albert_tf.optimizers.lamb import Lamb
from albert_tf.optimizers.muon import Muon

OPTIMIZERS = {"lamb": Lamb, "adamw": AdamWeightDecay, "muon": Muon}

__all__ = [
    "OPTIMIZERS",
    "AdamWeightDecay",
    "Lamb",
    "Muon",
    "WarmupPolynomialDecay",
    "create_optimizer",
]


def create_optimizer(
    name: str, learning_rate: float, num_train_steps: int, num_warmup_steps: int, poly_power: float = 1.0, **kwargs: Any
) -> AdamWeightDecay:
    """Makes the optimizer of google-research/albert's `create_optimizer`: warm-up, decay, clipping at norm 1.

    `name` is "lamb", "adamw" or "muon". The rate rises to `learning_rate` over the warm-up, then decays to zero at
    `num_train_steps`. `kwargs` go to the optimizer.

    Raises:
        ValueError: an unknown name or impossible schedule.

    >>> optimizer = create_optimizer("lamb", learning_rate=1.76e-3, num_train_steps=125_000, num_warmup_steps=3_125)
    >>> optimizer.global_clipnorm
    1.0
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer '{name}'; choose one of {', '.join(OPTIMIZERS)}")
    schedule = WarmupPolynomialDecay(learning_rate, num_train_steps, num_warmup_steps, poly_power)
    return OPTIMIZERS[name](learning_rate=schedule, **{"global_clipnorm": 1.0, **kwargs})


@keras.saving.register_keras_serializable("albert_tf")
class WarmupPolynomialDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Warms up linearly, then returns `peak * (1 - step / num_train_steps) ** poly_power`; the first update is step 1.

    The decay counts from the start, so the rate right after warm-up is a little below `peak`, and the first update has
    the rate `peak / num_warmup_steps`, not zero (google-research/albert:optimization.py:37-64). As in Keras, the
    argument is the number of past updates.

    Raises:
        ValueError: the warm-up is longer than the training.

    >>> schedule = WarmupPolynomialDecay(peak=0.1, num_train_steps=10, num_warmup_steps=2)
    >>> [round(float(schedule(updates)), 3) for updates in (0, 1, 8, 9)]
    [0.05, 0.08, 0.01, 0.0]
    """

    def __init__(self, peak: float, num_train_steps: int, num_warmup_steps: int = 0, poly_power: float = 1.0):
        if not 0 <= num_warmup_steps < num_train_steps:
            raise ValueError(f"num_warmup_steps={num_warmup_steps} must be in [0, num_train_steps={num_train_steps})")
        self.peak = peak
        self.num_train_steps = num_train_steps
        self.num_warmup_steps = num_warmup_steps
        self.poly_power = poly_power

    def __call__(self, step: Tensor) -> Tensor:
        step = ops.cast(step, "float32") + 1.0
        remaining = 1.0 - ops.minimum(step, self.num_train_steps) / self.num_train_steps
        decayed = self.peak * ops.power(remaining, self.poly_power)
        if self.num_warmup_steps == 0:
            return decayed
        return ops.where(step < self.num_warmup_steps, self.peak * step / self.num_warmup_steps, decayed)

    def get_config(self) -> dict:
        return {
            "peak": self.peak,
            "num_train_steps": self.num_train_steps,
            "num_warmup_steps": self.num_warmup_steps,
            "poly_power": self.poly_power,
        }

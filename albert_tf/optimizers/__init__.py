"""ALBERT's optimizers and learning-rate schedule, and Muon."""

from typing import Any

from albert_tf.choices import GRADIENT_NORMS
from albert_tf.optimizers.adam_weight_decay import AdamWeightDecay
from albert_tf.optimizers.lamb import Lamb
from albert_tf.optimizers.muon import Muon
from albert_tf.optimizers.schedules import WarmupPolynomialDecay, scale_learning_rate

OPTIMIZERS = {"lamb": Lamb, "adamw": AdamWeightDecay, "muon": Muon}

__all__ = [
    "GRADIENT_NORMS",
    "OPTIMIZERS",
    "AdamWeightDecay",
    "Lamb",
    "Muon",
    "WarmupPolynomialDecay",
    "create_optimizer",
    "scale_learning_rate",
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

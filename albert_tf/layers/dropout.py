"""Dropout whose masks can be drawn again: inside loops, on recomputation, and after a file was loaded."""

from typing import Any

import keras
from keras import ops

from albert_tf.layers import Tensor


class _Given(keras.random.SeedGenerator):
    """Hands out the one seed it was made from: Keras draws random numbers from a SeedGenerator only."""

    def __init__(self, seed: Tensor):
        self.seed = seed

    def next(self, ordered: bool = True) -> Tensor:
        return self.seed


def site_seed(seed: Tensor, site: Tensor) -> Tensor:
    """Gives one dropout site its own seed, from a call's seed (uint32 [2], or None) and the site's number.

    A call's seed is (constant, counter). The site goes into the constant, so no two sites of any two calls meet.
    """
    if seed is None:
        return None
    return seed + ops.cast(ops.stack([ops.cast(site, "int32") + 1, 0]), seed.dtype)


def dropout(inputs: Tensor, rate: float, seed: Tensor) -> Tensor:
    """Zeroes elements with probability `rate` and scales the rest by 1 / (1 - rate). No-op where seed is None."""
    if rate == 0 or seed is None:
        return inputs
    return keras.random.dropout(inputs, rate, seed=_Given(seed))


def whole_number(low: int, high: int, seed: Tensor) -> Tensor:
    """Draws an int32 scalar from low to high, both included, all of them as likely."""
    return keras.random.randint((), low, high + 1, dtype="int32", seed=_Given(seed))


@keras.saving.register_keras_serializable(package="albert_tf")
class ResumableDropout(keras.layers.Dropout):
    """Does what keras.layers.Dropout does; its files also hold how far the seed generator has counted."""

    def save_own_variables(self, store: Any) -> None:
        if self.rate:
            store["seed_generator_state"] = ops.convert_to_numpy(self.seed_generator.state)

    def load_own_variables(self, store: Any) -> None:
        if self.rate and "seed_generator_state" in set(store.keys()):
            self.seed_generator.state.assign(store["seed_generator_state"])

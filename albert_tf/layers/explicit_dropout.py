"""Dropout whose mask follows from a seed that is passed in, so that loops and recompute draw the same mask."""

import keras
from keras import ops


class _Given(keras.random.SeedGenerator):
    """Hands out the one seed it was made from: Keras draws random numbers from a SeedGenerator only."""

    def __init__(self, seed):
        self.seed = seed

    def next(self, ordered=True):
        return self.seed


def site_seed(seed, site):
    """The seed of one dropout site. seed: uint32 [2] or None; site: a number, which may be a tensor.

    A call's seed is (constant, counter). The site goes into the constant, so no two sites of any two calls meet.
    """
    if seed is None:
        return None
    return seed + ops.cast(ops.stack([ops.cast(site, "int32") + 1, 0]), seed.dtype)


def dropout(inputs, rate: float, seed):
    """Zeroes elements with probability `rate` and scales the rest by 1 / (1 - rate). No-op where seed is None."""
    if rate == 0 or seed is None:
        return inputs
    return keras.random.dropout(inputs, rate, seed=_Given(seed))

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
    """Draws an int32 scalar from low to high, both included, all of them as likely; the same under every backend.

    Backends have random generators of their own, so it is a hash of the seed: MurmurHash3's last step, twice.
    """
    first, second = (ops.cast(seed, "uint32")[i] for i in (0, 1))
    bits = _mixed(ops.bitwise_xor(_mixed(first), second))
    # As many bits as float32 holds.
    part = ops.cast(ops.bitwise_right_shift(bits, _uint32(8)), "float32") / 2**24
    return low + ops.cast(ops.floor(part * (high + 1 - low)), "int32")


def _mixed(bits: Tensor) -> Tensor:
    """A uint32 whose every bit hangs on every bit of another (Appleby's MurmurHash3, fmix32)."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = ops.bitwise_xor(bits, ops.bitwise_right_shift(bits, _uint32(shift))) * _uint32(factor)
    return ops.bitwise_xor(bits, ops.bitwise_right_shift(bits, _uint32(16)))


def _uint32(number: int) -> Tensor:
    return ops.convert_to_tensor(number, "uint32")


@keras.saving.register_keras_serializable(package="albert_tf")
class ResumableDropout(keras.layers.Dropout):
    """Does what keras.layers.Dropout does; its files also hold how far the seed generator has counted."""

    def save_own_variables(self, store: Any) -> None:
        if self.rate:
            store["seed_generator_state"] = ops.convert_to_numpy(self.seed_generator.state)

    def load_own_variables(self, store: Any) -> None:
        if self.rate and "seed_generator_state" in set(store.keys()):
            self.seed_generator.state.assign(store["seed_generator_state"])

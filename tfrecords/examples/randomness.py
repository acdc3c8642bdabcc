"""Random numbers that depend only on their purpose, not on the number of workers.

SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators"), counter-based: draw i of a
stream is a hash of (key, i), and a key is a hash of (seed, copy, document, ...).
"""

import numpy as np

from tfrecords.base.machine.compiled import compiled

GAMMA = np.uint64(0x9E3779B97F4A7C15)


def mix(x):
    """SplitMix64's finalizer: uint64 -> uint64, a bijection."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


_compiled_mix = compiled(mix, inline="always")


@compiled(inline="always")
def draw(key, counter):
    """Returns random number `counter` of the stream `key`: uint64."""
    return _compiled_mix(key + (np.uint64(counter) + np.uint64(1)) * GAMMA)


@compiled(inline="always")
def below(bits, bound):
    """Converts 64 random bits to a whole number in [0, bound), with a bias under bound / 2**32."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@compiled(inline="always")
def unit(bits):
    """Converts 64 random bits to a float64 in [0, 1)."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


def derive(*parts: int | np.ndarray) -> np.ndarray:
    """Hashes numbers, broadcast together, to uint64 keys of random streams."""
    key = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            key = mix(key + np.asarray(part).astype(np.int64).astype(np.uint64) + GAMMA)
    return key

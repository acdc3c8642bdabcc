"""When requests are due: the two open-loop arrival models. In a closed loop each client sends when its answer is in."""

import numpy as np


def constant(rate: float, seconds: float) -> np.ndarray:
    """Due times, float64 seconds from the start, one every 1/rate."""
    return np.arange(round(rate * seconds)) / rate


def poisson(rate: float, seconds: float, seed: int) -> np.ndarray:
    """Due times of a Poisson process that brings `rate * seconds` requests, the same for the same seed.

    Of a Poisson process whose number of arrivals is known, the arrivals are independent and uniform over the time: so
    the rate offered is the rate asked for, whatever the seed, and the gaps are as random as ever.
    """
    return np.sort(np.random.default_rng(seed).uniform(0, seconds, size=round(rate * seconds)))


def due_times(arrival: str, rate: float, seconds: float, seed: int) -> np.ndarray:
    return constant(rate, seconds) if arrival == "constant" else poisson(rate, seconds, seed)

"""When requests are due: the two open-loop arrival models. In a closed loop each client sends when its answer is in."""

import numpy as np


def constant(rate: float, seconds: float) -> np.ndarray:
    """Due times, float64 seconds from the start, one every 1/rate."""
    return np.arange(round(rate * seconds)) / rate


def poisson(rate: float, seconds: float, seed: int) -> np.ndarray:
    """Due times of a Poisson process: exponential gaps of mean 1/rate, the same for the same seed."""
    generator = np.random.default_rng(seed)
    times = np.empty(0)
    while not times.size or times[-1] < seconds:
        gaps = generator.exponential(1 / rate, size=max(int(rate * seconds), 16))
        times = np.concatenate([times, (times[-1] if times.size else 0.0) + np.cumsum(gaps)])
    return times[times < seconds]


def due_times(arrival: str, rate: float, seconds: float, seed: int) -> np.ndarray:
    return constant(rate, seconds) if arrival == "constant" else poisson(rate, seconds, seed)

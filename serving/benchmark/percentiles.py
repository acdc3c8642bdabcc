"""Percentiles of latencies."""

import math

import numpy as np

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}
# A percentile is quoted when at least this many samples lie beyond it: p50 takes 20, p99 1,000, p99.9 10,000.
SAMPLES_BEYOND = 10


def samples_needed(percent: float) -> int:
    """Returns a percentile's minimum number of samples."""
    return math.ceil(round(SAMPLES_BEYOND / (1 - percent / 100), 6))


def percentile(ordered: np.ndarray, percent: float) -> float:
    """Returns the nearest-rank percentile of ascending values."""
    return float(ordered[max(math.ceil(round(len(ordered) * percent / 100, 9)), 1) - 1])


def summarise(latencies: np.ndarray) -> dict[str, float | None]:
    """Returns min, mean, max and PERCENTILES; None where samples are too few."""
    ordered = np.sort(latencies)
    if not len(ordered):
        return dict.fromkeys(["min", "mean", *PERCENTILES, "max"])
    quoted = {
        name: percentile(ordered, percent) if len(ordered) >= samples_needed(percent) else None
        for name, percent in PERCENTILES.items()
    }
    return {"min": float(ordered[0]), "mean": float(ordered.mean()), **quoted, "max": float(ordered[-1])}

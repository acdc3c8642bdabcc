"""Statistics of latencies in milliseconds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)
# A percentile is quoted when at least this many samples lie beyond it: p50 takes 20, p99 1,000, p99.9 10,000.
SAMPLES_BEYOND = 10
# Windows of a steady server differ by less than this from their median (p50 of each).
STABLE_WITHIN = 0.10
# A server that answered nobody for this many seconds, and for this many times what its quicker answers take, stalled.
STALL_S = 1.0
STALL_OF_USUAL = 5.0


def percentile_name(percent: float) -> str:
    """Returns a percentile's name in reports, such as "p99.9"."""
    return f"p{percent:g}"


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
        return dict.fromkeys(["min", "mean", *map(percentile_name, PERCENTILES), "max"])
    summary = {"min": float(ordered[0]), "mean": float(ordered.mean())}
    for percent in PERCENTILES:
        enough = len(ordered) >= samples_needed(percent)
        summary[percentile_name(percent)] = percentile(ordered, percent) if enough else None
    return {**summary, "max": float(ordered[-1])}


@dataclass(frozen=True)
class Silence:
    """A time, in seconds, in which requests waited and none was answered."""

    seconds: float
    began: float


def longest_silence(due: np.ndarray, done: np.ndarray, good: np.ndarray) -> Silence:
    """Returns the longest silence."""
    if not len(done):
        return Silence(0.0, 0.0)
    order = np.argsort(done, kind="stable")
    due, done, answered = due[order], done[order], np.flatnonzero(good[order])
    # Of the requests that end at or after each place: since when the first of them waits.
    waiting_since = np.minimum.accumulate(due[::-1])[::-1]
    first = np.concatenate([[0], answered + 1])
    last = np.concatenate([answered, [len(done) - 1]])
    previous = np.concatenate([[0.0], done[answered]])
    # After the last answer there may be failures still, or nothing.
    there = first < len(done)
    began = np.maximum(previous[there], waiting_since[first[there]])
    lengths = done[last[there]] - began
    longest = int(np.argmax(lengths))
    return Silence(float(lengths[longest]), float(began[longest]))


def is_stall(silence: Silence, latencies: np.ndarray) -> bool:
    """Returns whether a silence is much longer than usual `latencies`."""
    if not len(latencies):
        return False
    usual = float(np.percentile(latencies, 25)) / 1000
    return silence.seconds >= max(STALL_S, STALL_OF_USUAL * usual)


@dataclass(frozen=True)
class Stability:
    """Whether a run was steady (None: too few samples), and why."""

    stable: bool | None
    reason: str


def stability(windows: Sequence[np.ndarray]) -> Stability:
    """Returns whether the windows have similar counts and medians."""
    counts = np.array([len(window) for window in windows])
    middle_count = float(np.median(counts))
    if len(windows) < 3 or middle_count < samples_needed(50.0):
        return Stability(None, f"not 3 windows with {samples_needed(50.0)} answers each: too few to tell")
    if counts.min() < middle_count / 2:
        return Stability(False, f"answers came unevenly: {counts.min()} to {counts.max()} a window")
    medians = np.array([np.median(window) for window in windows])
    middle = float(np.median(medians))
    worst = float(np.max(np.abs(medians - middle)) / middle)
    drift = f"the windows' p50 lie within {worst:.0%} of {middle:.3g} ms"
    return Stability(worst <= STABLE_WITHIN, drift)

"""Searches for the highest rate of Poisson arrivals that a server answers within a latency bound."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from serving.benchmark.schema import Point

# The search ends when the lowest failing rate is within this of the highest passing one.
PRECISION = 0.05
# p99 meets the bound: this share of requests is answered within it. Errors and answers after the deadline are not.
WITHIN = 0.99
_GROWTH = 1.5
_MOST_TRIALS = 20


@dataclass(frozen=True)
class Trial:
    """A tried rate, and why it failed: "latency", "errors" or "generator"; "" if it passed."""

    rate: float
    limit: str

    @property
    def passed(self) -> bool:
        return not self.limit


def judge(point: Point) -> Trial:
    """Converts a measured point to a trial.

    A missed bound is the server's fault only if the generator was on time.
    """
    if (point["within_bound"] or 0.0) >= WITHIN:
        return Trial(point["rate"], "")
    refused = sum(error["count"] for status, error in point["errors"].items() if status != "DEADLINE_EXCEEDED")
    if refused > (1 - WITHIN) * point["requests"]:
        return Trial(point["rate"], "errors")
    return Trial(point["rate"], "latency" if point["generator"]["kept_up"] else "generator")


def best_rate(trials: list[Trial]) -> float | None:
    """Returns the highest rate that passed, or None."""
    return max((trial.rate for trial in trials if trial.passed), default=None)


def find_rate(
    attempt: Callable[[float], Trial], first_rate: float, lowest_rate: float = 0.0
) -> tuple[float | None, list[Trial]]:
    """Returns the highest rate that passed, or None, and all trials.

    It starts at `first_rate`, brackets the limit, then bisects.
    """
    trials = [attempt(first_rate)]
    while len(trials) < _MOST_TRIALS:
        passed = [trial.rate for trial in trials if trial.passed]
        failed = [trial.rate for trial in trials if not trial.passed and trial.rate > max(passed, default=0.0)]
        if not failed:
            rate = max(passed) * _GROWTH
        elif not passed:
            rate = min(failed) / 2
        elif min(failed) / max(passed) <= 1 + PRECISION:
            break
        else:
            rate = math.sqrt(min(failed) * max(passed))
        if rate < max(lowest_rate, first_rate / 1000):
            break
        trials.append(attempt(rate))
    return best_rate(trials), trials

"""Searches for the highest rate of Poisson arrivals that a server answers within a latency bound."""

import math
from collections.abc import Sequence
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

    A missed bound counts against the server only if the generator was on time.
    """
    if (point["within_bound"] or 0.0) >= WITHIN:
        return Trial(point["rate"], "")
    refused = sum(error["count"] for status, error in point["errors"].items() if status != "DEADLINE_EXCEEDED")
    if refused > (1 - WITHIN) * point["requests"]:
        return Trial(point["rate"], "errors")
    return Trial(point["rate"], "latency" if point["generator"]["kept_up"] else "generator")


def best_rate(trials: Sequence[Trial]) -> float | None:
    """Returns the highest rate that passed, or None."""
    return max((trial.rate for trial in trials if trial.passed), default=None)


def next_rate(trials: Sequence[Trial], first_rate: float, lowest_rate: float = 0.0) -> float | None:
    """Returns the rate to try after these trials, or None at the end of the search.

    It starts at `first_rate`, brackets the limit, then bisects.
    """
    if not trials:
        return first_rate
    passed = best_rate(trials)
    failed = [trial.rate for trial in trials if not trial.passed and trial.rate > (passed or 0.0)]
    if not failed:
        rate = passed * _GROWTH
    elif not passed:
        rate = min(failed) / 2
    elif min(failed) / passed <= 1 + PRECISION:
        return None
    else:
        rate = math.sqrt(min(failed) * passed)
    is_over = len(trials) == _MOST_TRIALS or rate < max(lowest_rate, first_rate / 1000)
    return None if is_over else rate

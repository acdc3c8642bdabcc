"""Searches for the highest rate of Poisson arrivals that a server answers within a latency bound."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

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
    point: dict = field(default_factory=dict, compare=False)

    @property
    def passed(self) -> bool:
        return not self.limit


def judge(point: dict) -> Trial:
    """Converts a measured point to a trial.

    A missed bound counts against the server only if the generator was on time.
    """
    refused = sum(error["count"] for status, error in point["errors"].items() if status != "DEADLINE_EXCEEDED")
    if (point["within_bound"] or 0.0) >= WITHIN:
        limit = ""
    elif refused > (1 - WITHIN) * point["requests"]:
        limit = "errors"
    else:
        limit = "latency" if point["generator"]["kept_up"] else "generator"
    return Trial(point["rate"], limit, point)


def best_trial(trials: Sequence[Trial]) -> Trial | None:
    """Returns the trial with the highest rate that passed, or None."""
    return max((trial for trial in trials if trial.passed), key=lambda trial: trial.rate, default=None)


def lowest_failure(trials: Sequence[Trial]) -> Trial | None:
    """Returns the failed trial with the lowest rate above the best one, or None."""
    best = best_trial(trials)
    failed = [trial for trial in trials if not trial.passed and trial.rate > (best.rate if best else 0)]
    return min(failed, key=lambda trial: trial.rate, default=None)


def next_rate(trials: Sequence[Trial], first_rate: float, lowest_rate: float = 0.0) -> float | None:
    """Returns the rate to try after these trials, or None at the end of the search.

    It starts at `first_rate`, brackets the limit, then bisects.
    """
    if not trials:
        return first_rate
    best, failed = best_trial(trials), lowest_failure(trials)
    if not failed:
        rate = best.rate * _GROWTH
    elif not best:
        rate = failed.rate / 2
    elif failed.rate / best.rate <= 1 + PRECISION:
        return None
    else:
        rate = math.sqrt(failed.rate * best.rate)
    is_over = len(trials) == _MOST_TRIALS or rate < max(lowest_rate, first_rate / 1000)
    return None if is_over else rate

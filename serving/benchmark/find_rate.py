"""Searches for the highest rate of Poisson arrivals that a server answers within a latency bound."""

import math
from collections.abc import Callable, Iterator

# The search ends when the lowest failing rate is within this of the highest passing one.
PRECISION = 0.05
# p99 meets the bound: this share of requests is answered within it. Errors and answers after the deadline are not.
WITHIN = 0.99
_GROWTH, _MOST_TRIALS = 1.5, 20


def limit_of(point: dict) -> str:
    """Returns why a measured point misses its bound: "latency", "errors" or "generator"; "" if it meets it.

    A missed bound counts against the server only if the generator was on time.
    """
    refused = sum(error["count"] for status, error in point["errors"].items() if status != "DEADLINE_EXCEEDED")
    if (point["within_bound"] or 0.0) >= WITHIN:
        return ""
    if refused > (1 - WITHIN) * point["requests"]:
        return "errors"
    return "latency" if point["generator"]["kept_up"] else "generator"


def bracket(trials: list[dict]) -> tuple[dict | None, dict | None]:
    """Returns the trial (a point with its `limit`) with the highest rate that passed, and the lowest above it."""
    best = max((one for one in trials if not one["limit"]), key=lambda one: one["rate"], default=None)
    failed = [one for one in trials if one["limit"] and one["rate"] > (best["rate"] if best else 0)]
    return best, min(failed, key=lambda one: one["rate"], default=None)


def search(measure: Callable[[float], dict], first_rate: float, lowest_rate: float = 0.0) -> Iterator[dict]:
    """Yields the trials that `measure` makes of rates: from `first_rate` on, it brackets the limit, then bisects."""
    trials: list[dict] = []
    rate = first_rate
    while len(trials) < _MOST_TRIALS and rate >= max(lowest_rate, first_rate / 1000):
        trials.append(measure(rate))
        yield trials[-1]
        best, failed = bracket(trials)
        if best and failed and failed["rate"] / best["rate"] <= 1 + PRECISION:
            return
        if not failed:
            rate *= _GROWTH
        else:
            rate = math.sqrt(failed["rate"] * best["rate"]) if best else rate / 2

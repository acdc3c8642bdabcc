"""The search for the highest rate, on servers whose limit is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.benchmark.find_rate import PRECISION, Trial, best_trial, judge, next_rate


def search(limit, first_rate):
    """The trials of a search at a server that meets the bound up to its limit."""
    trials = []
    while (rate := next_rate(trials, first_rate)) is not None:
        trials.append(Trial(rate, "" if rate <= limit else "latency"))
    return trials


@given(limit=st.floats(0.5, 5000), start=st.floats(0.02, 5.0))
def test_finds_the_limit_to_its_precision(limit, start):
    trials = search(limit, start * limit)
    best = best_trial(trials).rate
    assert best <= limit <= best * (1 + PRECISION) * (1 + 1e-9)
    assert trials[0].rate == start * limit and len(trials) <= 20


def test_a_server_that_never_meets_the_bound():
    trials = search(0.0, 100.0)
    assert best_trial(trials) is None and len(trials) <= 20


def test_a_server_without_limit_ends_the_search():
    trials = search(float("inf"), 1.0)
    assert best_trial(trials).rate == max(trial.rate for trial in trials) and len(trials) == 20


def point(within_bound, kept_up=True, **errors):
    counted = {status: {"count": count} for status, count in errors.items()}
    return {
        "rate": 5.0, "requests": 1000, "within_bound": within_bound, "generator": {"kept_up": kept_up},
        "errors": counted,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("point", "limit"),
    [
        (point(0.995), ""),
        (point(0.989), "latency"),
        (point(0.995, kept_up=False), ""),
        (point(0.5, kept_up=False), "generator"),
        (point(0.5, UNAVAILABLE=500), "errors"),
        (point(0.5, kept_up=False, UNAVAILABLE=500), "errors"),
        (point(0.5, UNAVAILABLE=10), "latency"),
        # Too slow for the deadline is too slow.
        (point(0.5, DEADLINE_EXCEEDED=500), "latency"),
        (point(None), "latency"),
    ],
)
def test_judgement(point, limit):
    assert judge(point) == Trial(5.0, limit)

"""The search for the highest rate, on servers whose limit is known."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.benchmark.run import PRECISION, bracket, limit_of, search


def trials(limit, first_rate):
    """The trials of a search at a server that meets the bound up to its limit."""
    return list(search(lambda rate: {"rate": rate, "limit": "" if rate <= limit else "latency"}, first_rate))


@given(limit=st.floats(0.5, 5000), start=st.floats(0.02, 5.0))
def test_finds_the_limit_to_its_precision(limit, start):
    found = trials(limit, start * limit)
    best = bracket(found)[0]["rate"]
    assert best <= limit <= best * (1 + PRECISION) * (1 + 1e-9)
    assert found[0]["rate"] == start * limit and len(found) <= 20


def test_a_server_without_a_limit_or_that_never_meets_the_bound_ends_the_search():
    never, always = trials(0.0, 100.0), trials(float("inf"), 1.0)
    assert bracket(never) == (None, never[-1]) and len(never) <= 20
    assert bracket(always) == (always[-1], None) and len(always) == 20


# The share within the bound, whether the generator kept up, errors by status, and what is the limit.
JUDGED = """
0.995 | true | {} | ""
0.989 | true | {} | "latency"
0.995 | false | {} | ""
0.5 | false | {} | "generator"
0.5 | true | {"UNAVAILABLE": 500} | "errors"
0.5 | false | {"UNAVAILABLE": 500} | "errors"
0.5 | true | {"UNAVAILABLE": 10} | "latency"
0.5 | true | {"DEADLINE_EXCEEDED": 500} | "latency"
null | true | {} | "latency"
"""


@pytest.mark.parametrize("line", JUDGED.strip().splitlines())
def test_judgement(line):
    within_bound, kept_up, errors, limit = map(json.loads, line.split(" | "))
    counted = {status: {"count": count} for status, count in errors.items()}
    point = {"requests": 1000, "within_bound": within_bound, "generator": {"kept_up": kept_up}, "errors": counted}
    assert limit_of(point) == limit

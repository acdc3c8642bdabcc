"""Due times: exact for constant rates, a Poisson process for random ones."""

import numpy as np
import pytest
from scipy import stats

from serving.benchmark.load import constant_arrivals, poisson_arrivals


@pytest.mark.parametrize("rate", [0.5, 3.0, 250.0])
def test_constant_is_evenly_spaced(rate):
    due = constant_arrivals(rate, 20.0)
    assert len(due) == round(20 * rate) and due[0] == 0
    np.testing.assert_allclose(np.diff(due), 1 / rate)


def test_poisson_gaps_are_exponential():
    due = poisson_arrivals(200.0, 100.0, seed=1)
    gaps = np.diff(due)
    assert len(due) == 20_000
    assert stats.kstest(gaps, "expon", args=(0, 1 / 200)).pvalue > 1e-3
    # Independent of one another: what tells a Poisson process from any other with such gaps.
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.03
    assert (gaps >= 0).all() and due[-1] < 100


def test_poisson_is_its_seed():
    np.testing.assert_array_equal(poisson_arrivals(50, 5, seed=3), poisson_arrivals(50, 5, seed=3))
    assert not np.array_equal(poisson_arrivals(50, 5, seed=3)[:20], poisson_arrivals(50, 5, seed=4)[:20])


@pytest.mark.parametrize("rate", [0.5, 7.5, 120.0])
def test_poisson_offers_the_rate_asked_for_whatever_its_seed(rate):
    assert {len(poisson_arrivals(rate, 10.0, seed=seed)) for seed in range(50)} == {round(10 * rate)}


def test_poisson_halves_are_as_uneven_as_chance_makes_them():
    first = np.array([(poisson_arrivals(10.0, 10.0, seed=seed) < 5).sum() for seed in range(1000)])
    # Of 100 arrivals each falls into the first half with 1/2: variance 25.
    assert abs(first.mean() - 50) < 0.7 and 21 < first.var() < 29

"""Due times: exact for constant rates, a Poisson process for random ones."""

import numpy as np
import pytest
from scipy import stats

from serving.benchmark.load import due_times


@pytest.mark.parametrize("rate", [0.5, 3.0, 250.0])
def test_constant_is_evenly_spaced(rate):
    due = due_times("constant", rate, 20.0)
    assert len(due) == round(20 * rate) and due[0] == 0
    np.testing.assert_allclose(np.diff(due), 1 / rate)


def test_poisson_gaps_are_exponential_and_their_number_is_the_rate():
    due = due_times("poisson", 200.0, 100.0)
    gaps = np.diff(due)
    assert len(due) == 20_000 and len(due_times("poisson", 0.5, 10.0)) == 5
    assert stats.kstest(gaps, "expon", args=(0, 1 / 200)).pvalue > 1e-3
    # Independent of one another: what tells a Poisson process from any other with such gaps.
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.03
    assert (gaps >= 0).all() and due[-1] < 100
    np.testing.assert_array_equal(due, due_times("poisson", 200.0, 100.0))

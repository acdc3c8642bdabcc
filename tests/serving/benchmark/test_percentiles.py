"""Percentiles and verdicts."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.benchmark.percentiles import PERCENTILES, percentile, samples_needed, stability, summarise

latencies = st.lists(st.floats(0.002, 100_000), min_size=1, max_size=200).map(np.array)


@given(latencies, st.sampled_from(list(PERCENTILES.values())))
@example(np.arange(1, 1001), 99.9)
def test_percentile_is_the_smallest_value_that_covers_the_share(values, percent):
    found = percentile(np.sort(values), percent)
    assert found in values
    assert (values <= found).mean() >= percent / 100 - 1e-9
    assert (values < found).mean() < percent / 100


def test_a_percentile_is_quoted_only_with_ten_samples_beyond():
    for (name, percent), needed in zip(PERCENTILES.items(), (20, 100, 200, 1000, 10_000), strict=True):
        assert samples_needed(percent) == needed
        assert summarise(np.ones(needed - 1))[name] is None and summarise(np.ones(needed))[name] == 1
    assert set(summarise(np.empty(0)).values()) == {None}


STEADY = [np.full(50, 10.0)] * 5


@pytest.mark.parametrize(
    "windows, stable, words",
    [
        (STEADY, True, "lie within 0%"),
        ([np.full(50, 10.0 + i) for i in range(5)], False, "17%"),
        (STEADY[:2], None, "too few to tell"),
        ([np.full(12, 10.0)] * 5, None, "too few to tell"),
        ([*STEADY, np.full(3, 10.0)], False, "3 to 50 a window"),
    ],
)
def test_stability(windows, stable, words):
    found, reason = stability(windows)
    assert found is stable and words in reason

"""Percentiles and verdicts."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from serving.benchmark.load import PERCENTILES, percentile, samples_needed, summarise

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

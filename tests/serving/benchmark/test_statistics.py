"""Percentiles and verdicts."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.benchmark import statistics

latencies = st.lists(st.floats(0.002, 100_000), min_size=1, max_size=200).map(np.array)


@given(latencies, st.sampled_from(statistics.PERCENTILES))
@example(np.arange(1, 1001), 99.9)
def test_percentile_is_the_smallest_value_that_covers_the_share(values, percent):
    found = statistics.percentile(np.sort(values), percent)
    assert found in values
    assert (values <= found).mean() >= percent / 100 - 1e-9
    assert (values < found).mean() < percent / 100


@pytest.mark.parametrize(("percent", "needed"), [(50.0, 20), (90.0, 100), (95.0, 200), (99.0, 1000), (99.9, 10_000)])
def test_a_percentile_is_quoted_only_with_ten_samples_beyond(percent, needed):
    assert statistics.samples_needed(percent) == needed
    name = statistics.percentile_name(percent)
    assert statistics.summarise(np.ones(needed - 1))[name] is None
    assert statistics.summarise(np.ones(needed))[name] == 1


def test_nothing_measured_is_nothing_quoted():
    assert set(statistics.summarise(np.empty(0)).values()) == {None}


STEADY = [np.full(50, 10.0)] * 5


@pytest.mark.parametrize(
    ("windows", "stable", "words"),
    [
        (STEADY, True, "lie within 0%"),
        ([np.full(50, 10.0 + i) for i in range(5)], False, "17%"),
        (STEADY[:2], None, "too few to tell"),
        ([np.full(12, 10.0)] * 5, None, "too few to tell"),
        ([*STEADY, np.full(3, 10.0)], False, "3 to 50 a window"),
    ],
)
def test_stability(windows, stable, words):
    verdict = statistics.stability(windows)
    assert verdict.stable is stable and words in verdict.reason


REQUESTS = st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 3), st.booleans()), min_size=1, max_size=12)


@given(REQUESTS)
def test_nobody_is_answered_in_the_longest_silence_and_no_wait_is_longer(rows):
    due, taken, good = map(np.array, zip(*rows, strict=True))
    done = due + taken
    silence = statistics.longest_silence(due, done, good)
    end = silence.began + silence.seconds
    assert not ((done[good] > silence.began) & (done[good] < end - 1e-9)).any()
    assert due.min() <= silence.began and end <= done.max() + 1e-9
    for waited_from, waited_to in zip(due, done, strict=True):
        answers = np.sort(done[good & (done > waited_from) & (done < waited_to)])
        unanswered = np.diff([waited_from, *answers, waited_to])
        assert silence.seconds >= unanswered.max() - 1e-9


def test_a_stall_is_long_beside_the_usual_answer():
    silence = statistics.Silence(5.0, 2.0)
    assert statistics.is_stall(silence, np.full(50, 10.0))
    assert not statistics.is_stall(silence, np.full(50, 2000.0))
    assert not statistics.is_stall(statistics.Silence(0.9, 2.0), np.full(50, 1.0))
    assert not statistics.is_stall(silence, np.empty(0))

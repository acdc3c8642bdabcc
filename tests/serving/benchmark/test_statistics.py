"""Percentiles, histograms, intervals and verdicts."""

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


@given(latencies)
def test_histogram_keeps_every_sample_to_three_digits(values):
    decoded, counts = statistics.decode_histogram(statistics.encode_histogram(values))
    assert counts.sum() == len(values)
    np.testing.assert_allclose(np.repeat(decoded, counts), np.sort(values), rtol=2e-3, atol=1e-3)


def test_histogram_is_readable_by_the_library():
    from hdrh.histogram import HdrHistogram

    values = np.linspace(1, 100, 5000)
    read = HdrHistogram.decode(statistics.encode_histogram(values))
    assert read.get_value_at_percentile(99) == pytest.approx(99_000, rel=2e-3)


def windows_of(random, count, size, spread=0.0):
    return [random.lognormal(2 + spread * random.normal(), 0.4, size) for _ in range(count)]


@pytest.mark.slow
def test_intervals_cover_the_truth_about_as_often_as_they_say():
    random = np.random.default_rng(0)
    truth = {"p50": np.exp(2), "p90": np.exp(2 + 0.4 * 1.2815515655)}
    hits = dict.fromkeys(truth, 0)
    for _ in range(40):
        intervals = statistics.intervals(windows_of(random, 10, 100))
        for name, value in truth.items():
            hits[name] += intervals[name][0] <= value <= intervals[name][1]
    # Binomial(40, 0.95) falls below 32 once in ten thousand runs; an interval half as wide would cover 67 %, so 27.
    assert min(hits.values()) >= 32


def test_windows_that_differ_widen_the_interval():
    random = np.random.default_rng(1)
    steady, unsteady = (
        np.diff(statistics.intervals(windows_of(random, 10, 200, spread))["p50"]) for spread in (0.0, 0.3)
    )
    assert unsteady > 3 * steady


def test_bootstrap_is_reproducible_and_survives_an_empty_window():
    windows = [(np.sort(one), np.ones(100)) for one in windows_of(np.random.default_rng(2), 4, 100)]
    first, second = (statistics.bootstrap_percentiles(windows, [50.0], seed=5) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert statistics.intervals([np.ones(30), np.empty(0)])["p50"] == [pytest.approx(1, rel=1e-3)] * 2
    assert statistics.intervals([np.empty(0)])["p50"] is None


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

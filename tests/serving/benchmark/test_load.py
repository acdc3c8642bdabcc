"""Closed and open loops against servers that answer, stall, fail and drop; percentiles and verdicts."""

import contextlib
import threading
import time

import grpc
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from serving.benchmark import point
from serving.benchmark.load import PERCENTILES, Driver, Load, Samples, due_times, percentile, samples_needed, summarise
from serving.client import Connection
from tests.serving.benchmark.conftest import ANSWER, Numbered
from tests.stand_in import StandIn

LOADS = {"open": Load("constant", rate=100, least_requests=0), "closed": Load("closed", 1, least_requests=0)}
in_both_loops = pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)


def test_constant_arrivals_are_evenly_spaced():
    for rate in (0.5, 3.0, 250.0):
        due = due_times("constant", rate, 20.0)
        assert len(due) == round(20 * rate) and due[0] == 0
        assert_allclose(np.diff(due), 1 / rate)


def test_poisson_gaps_are_exponential_and_their_number_is_the_rate():
    due = due_times("poisson", 200.0, 100.0)
    gaps = np.diff(due)
    assert len(due) == 20_000 and len(due_times("poisson", 0.5, 10.0)) == 5
    assert stats.kstest(gaps, "expon", args=(0, 1 / 200)).pvalue > 1e-3
    # Independent of one another: what tells a Poisson process from any other with such gaps.
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.03
    assert (gaps >= 0).all() and due[-1] < 100
    assert_array_equal(due, due_times("poisson", 200.0, 100.0))


@pytest.mark.parametrize("rate, least, due", [(50, 20, 500), (50, 1000, 1000), (5, 1000, 500), (1, 20, 20)])
def test_an_open_loop_goes_on_until_the_least_number_is_due_but_not_for_ever(rate, least, due):
    assert rate * Load("poisson", rate=rate, least_requests=least).stretched(10.0) == due


def drive(load, behaviour=None, threads=4, requests=(b"",), seconds=0.4, timeout_s=10.0):
    with StandIn(behaviour, threads=threads) as server, driver_of(server) as driver:
        return driver.run(load, requests, seconds, timeout_s)


def driver_of(server):
    return contextlib.closing(Driver(Connection(server.target, attempts=1)))


def test_closed_loop_keeps_as_many_in_flight_as_there_are_clients_and_sends_the_requests_in_turn():
    seen = []

    def slow(request, context):
        seen.append(request)
        time.sleep(0.02)
        return ANSWER

    samples = drive(Load("closed", 3, least_requests=0), slow, 8, [b"a", b"b", b"c", b"d"])
    in_flight = (samples.sent <= samples.sent[:, None]) & (samples.sent[:, None] < samples.done)
    # Each client waits for its answer: no more than one request each 20 ms.
    assert in_flight.sum(axis=1).max() == 3 and len(samples.due) == len(seen) <= 3 * (0.4 / 0.02 + 1)
    assert_array_equal(samples.due, samples.sent)
    assert set(seen[:3]) == {b"a", b"b", b"c"} and b"d" in seen[3:6]


def test_a_stall_shows_in_the_open_loop_and_hides_in_the_closed_one():
    """Coordinated omission: in the stalled second the closed loop's client asks nothing, and records one sample."""

    def latencies(load):
        # Every request takes 2 ms, on one thread; the 20th takes a second.
        stalling = Numbered(lambda number, context: time.sleep(1.0) if number == 20 else None, seconds=0.002)
        return drive(load, stalling, 1, seconds=1.5).latencies_ms

    closed, opened = latencies(LOADS["closed"]), latencies(LOADS["open"])
    # Of an overloaded machine a few more may be slow.
    assert closed.max() > 1000 and (closed > 900).sum() == 1
    # 100 requests were due in the stalled second, and waited from then.
    assert (opened > 100).sum() > 60 and np.percentile(opened, 90) > 400


@in_both_loops
def test_errors_are_counted_by_status(load):
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED

    def answer(number, context):
        if number % 4 == 0:
            context.abort(exhausted, "Server Threadpool Exhausted")

    unreliable = Numbered(answer)
    samples = drive(load, unreliable, 1)
    failed = samples.code == exhausted.value[0]
    assert len(samples.code) == unreliable.calls and failed.sum() == unreliable.calls // 4 > 0
    assert (failed | (samples.code == 0)).all()
    (code, (first_s, message)), *others = samples.failures.items()
    assert code == 8 and first_s <= samples.done[failed].min() and "Exhausted" in message and not others


@in_both_loops
def test_late_answers_are_deadline_errors(load):
    released = threading.Event()
    with StandIn(Numbered(lambda *_: released.wait(20) and None), threads=8) as server, driver_of(server) as driver:
        samples = driver.run(load, [b""], 0.4, 0.1)
        released.set()
    assert len(samples.code) and (samples.code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]).all()


def judged(due, done, code=0, seconds=10.0, sent=None, cpu_share=0.0, bound_ms=0.0):
    """The summary of a run whose requests were due, and done, at these times (seconds); `sent`: of an open loop."""
    due, done = np.asarray(due, float), np.asarray(done, float)
    codes = np.broadcast_to(code, due.shape).astype(np.uint8)
    failures = {int(one): (0.0, "") for one in np.unique(codes[codes > 0])}
    samples = Samples(due, due if sent is None else np.asarray(sent), done, codes, seconds, failures, cpu_share)
    return point.summary(samples, LOADS["closed" if sent is None else "open"], 1, bound_ms)


def test_latency_counts_from_when_a_request_was_due():
    summary = judged([0.0, 1.0], [0.1, 1.6], sent=[0.0, 1.5], seconds=2.0, bound_ms=200.0)
    latency = summary["latency_ms"]
    assert [latency["min"], latency["mean"], latency["max"]] == pytest.approx([100, 350, 600])
    assert summary["within_bound"] == 0.5 and summary["offered_per_second"] == 1.0
    # The offered rate is what was sent, here twice as slowly.
    assert judged([0.0, 1.0], [0.1, 4.1], sent=[0.0, 4.0], seconds=2.0)["offered_per_second"] == 0.5


@pytest.mark.parametrize(
    "late_ms, late, latency_ms, timed_out, kept_up",
    [
        (0.5, 10, 5.0, 0, True),
        (3.0, 10, 5.0, 0, False),
        (3.0, 1, 5.0, 0, True),
        # Three milliseconds late do not matter beside a hundred.
        (3.0, 10, 100.0, 0, True),
        # Requests that ran into their deadline excuse no lateness; those that were sent late count, answered or not.
        (3.0, 10, 5.0, 150, False),
        (3.0, 200, 5.0, 199, False),
    ],
)
def test_a_run_is_invalid_when_the_generator_fell_behind(late_ms, late, latency_ms, timed_out, kept_up):
    number = np.arange(200)
    due, is_cut = number / 100, number >= 200 - timed_out
    sent = due + (number < late) * late_ms / 1000
    summary = judged(due, np.where(is_cut, due + 30, sent + latency_ms / 1000), is_cut * 4, sent=sent)
    assert summary["generator"]["kept_up"] is kept_up
    assert ("the generator fell behind" in summary["invalid_because"]) is not kept_up


def test_a_generator_held_up_or_out_of_cpu_is_found_out(monkeypatch):
    idle, busy = drive(LOADS["closed"], Numbered(seconds=0.05)), drive(Load("closed", 4))
    assert busy.cpu_share > 3 * idle.cpu_share
    due = np.arange(0, 10, 0.01)
    for cpu_share, reasons in ((0.5, []), (0.95, ["the generator ran out of CPU"])):
        summary = judged(due, due + 0.001, cpu_share=cpu_share)
        assert summary["invalid_because"] == reasons and summary["valid"] is not bool(reasons)
    real_sleep = time.sleep
    monkeypatch.setattr("serving.benchmark.load.time.sleep", lambda seconds: real_sleep(seconds + 0.02))
    assert point.fell_behind(drive(LOADS["open"], seconds=0.5))


@pytest.mark.parametrize(
    "code, reasons, answered",
    [
        # One in a hundred may fail.
        (np.where(np.arange(1000) % 100 == 0, 8, 0), [], 990),
        (np.where(np.arange(1000) % 50 == 0, 8, 0), ["2.0% of the requests failed"], 980),
        (np.full(1000, 8), ["no request was answered"], 0),
    ],
)
def test_a_point_of_failures_is_invalid(code, reasons, answered):
    due = np.arange(1000) / 100
    summary = judged(due, due + 0.0005, code)
    assert summary["invalid_because"] == reasons and summary["valid"] is not bool(reasons)
    assert summary["answered"] == answered == 1000 - summary["errors"]["RESOURCE_EXHAUSTED"]["count"]
    assert (summary["latency_ms"]["p50"] is None) == (not answered)


def test_waiting_for_a_deadline_does_not_thin_out_the_answers():
    due = np.arange(0, 10, 0.1)
    code = np.where(due >= 9, 4, 0)
    summary = judged(due, np.where(due >= 9, due + 30, due + 0.01), code)
    assert summary["requests_per_second"] == pytest.approx(9.0)


def test_closed_loop_goes_on_for_the_least_number_of_requests():
    slow = Numbered(seconds=0.01)
    enough = drive(Load("closed", 1, least_requests=40), slow, seconds=0.1)
    cut = drive(Load("closed", 1, least_requests=1000), slow, seconds=0.02)
    assert 40 <= len(enough.due) <= 41 and len(cut.due) < 100


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

"""Closed and open loops against servers that answer, stall, fail, drop and answer wrongly."""

import contextlib
import threading
import time

import grpc
import numpy as np
import pytest

from serving.benchmark import answers, load, point
from serving.benchmark.load import Driver, LoadShare, Samples, due_times
from serving.client import Connection
from tests.serving.benchmark.conftest import ANSWER, Numbered
from tests.stand_in import StandIn, constant_answer

LOOPS = {"open": {"due": due_times("constant", 100, 0.4)}, "closed": {"clients": 1}}
in_both_loops = pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)


def drive(behaviour=None, threads=4, **options):
    with StandIn(behaviour, threads=threads) as server:
        return drive_at(server, **options)


def drive_at(server, references=(ANSWER,), timeout_s=10.0, seconds=0.4, **options):
    with contextlib.closing(Driver(Connection(server.target, attempts=1))) as driver:
        return driver.run(LoadShare([b""], references, timeout_s, time.perf_counter() + 0.02, seconds, **options))


def test_closed_loop_keeps_as_many_in_flight_as_there_are_clients():
    seen = []

    def slow(request, context):
        seen.append(request)
        time.sleep(0.02)
        return ANSWER

    samples = drive(slow, 8, clients=3)
    in_flight = (samples.sent <= samples.sent[:, None]) & (samples.sent[:, None] < samples.done)
    # Each client waits for its answer: no more than one request each 20 ms.
    assert in_flight.sum(axis=1).max() == 3 and len(samples.due) == len(seen) <= 3 * (0.4 / 0.02 + 1)
    np.testing.assert_array_equal(samples.due, samples.sent)


def test_closed_loop_goes_on_for_the_least_number_of_requests():
    slow = Numbered(seconds=0.01)
    enough = drive(slow, clients=1, seconds=0.1, least_requests=40)
    cut = drive(slow, clients=1, seconds=0.02, least_requests=1000)
    assert 40 <= len(enough.due) <= 41 and len(cut.due) < 100


def test_a_stall_shows_in_the_open_loop_and_hides_in_the_closed_one():
    """Coordinated omission: in the stalled second the closed loop's client asks nothing, and records one sample."""

    def latencies(**loop):
        # Every request takes 2 ms, on one thread; the 20th takes a second.
        stalling = Numbered(lambda number, context: time.sleep(1.0) if number == 20 else None, seconds=0.002)
        samples = drive(stalling, 1, **loop)
        return (samples.done - samples.due) * 1000

    closed, opened = latencies(clients=1, seconds=1.5), latencies(due=due_times("constant", 100, 1.5))
    # Of an overloaded machine a few more may be slow.
    assert closed.max() > 1000 and (closed > 900).sum() == 1
    # 100 requests were due in the stalled second, and waited from then.
    assert (opened > 100).sum() > 60 and np.percentile(opened, 90) > 400


def judged(due, done, code=0, seconds=10.0, sent=None, cpu_share=0.0, bound_ms=0.0):
    """The summary of a run whose requests were due, and done, at these times (seconds); `sent`: of an open loop."""
    due, done = np.asarray(due, float), np.asarray(done, float)
    codes = np.broadcast_to(code, due.shape).astype(np.uint8)
    failures = {int(one): (0.0, "") for one in np.unique(codes[codes > 0])}
    samples = Samples(due, due if sent is None else np.asarray(sent), done, codes, failures=failures)
    samples.cpu_share = cpu_share
    share = LoadShare([b""], [b""], 1.0, 0.0, seconds, clients=1, due=None if sent is None else due)
    return point.summary(samples, share, 1, bound_ms)


def test_latency_counts_from_when_a_request_was_due():
    summary = judged([0.0, 1.0], [0.1, 1.6], sent=[0.0, 1.5], seconds=2.0, bound_ms=200.0)
    latency = summary["latency_ms"]
    assert [latency["min"], latency["mean"], latency["max"]] == pytest.approx([100, 350, 600])
    assert summary["within_bound"] == 0.5
    assert summary["goodput_per_second"] == 0.5


@pytest.mark.parametrize(
    ("late_ms", "late", "latency_ms", "timed_out", "kept_up"),
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


def test_a_generator_held_up_for_real_is_found_out(monkeypatch):
    real_sleep = time.sleep
    monkeypatch.setattr("serving.benchmark.load.time.sleep", lambda seconds: real_sleep(seconds + 0.02))
    assert point.fell_behind(drive(due=due_times("constant", 100, 0.5)))


@in_both_loops
def test_errors_are_counted_by_status_and_wrong_answers_are_found(loop):
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED

    def answer(number, context):
        if number % 4 == 0:
            context.abort(exhausted, "Server Threadpool Exhausted")
        return number % 4 == 1 and constant_answer((0.9, 0.1))

    unreliable = Numbered(answer)
    samples = drive(unreliable, 1, references=[ANSWER], **loop)
    calls, failed = unreliable.calls, samples.code == exhausted.value[0]
    assert len(samples.code) == calls and failed.sum() == calls // 4 > 0 and (failed | (samples.code == 0)).all()
    assert samples.failures == {8: (samples.done[failed].min(), "Server Threadpool Exhausted")}
    assert answers.check(samples.differing, [ANSWER], calls)["wrong_answers"] == (calls + 3) // 4


def test_different_answers_of_a_long_run_are_kept_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(load, "_MOST_DIFFERING_BYTES", 3 * len(ANSWER))
    drifting = Numbered(lambda number, context: constant_answer((number / 1000, 0.5)))
    samples = drive(drifting, 1, clients=1)
    assert len(samples.differing) == 3 + 1 and samples.differing[None] == drifting.calls - 3


@in_both_loops
def test_late_answers_are_deadline_errors(loop):
    released = threading.Event()
    with StandIn(Numbered(lambda *_: released.wait(20) and None), threads=8) as server:
        samples = drive_at(server, timeout_s=0.1, **loop)
        released.set()
    assert len(samples.code) and (samples.code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]).all()


def test_a_generator_out_of_cpu_is_invalid():
    idle, busy = drive(Numbered(seconds=0.05), clients=1), drive(clients=4)
    assert busy.cpu_share > 3 * idle.cpu_share
    due = np.arange(0, 10, 0.01)
    for cpu_share, reasons in ((0.5, []), (0.95, ["the generator ran out of CPU"])):
        summary = judged(due, due + 0.001, cpu_share=cpu_share)
        assert summary["invalid_because"] == reasons and summary["valid"] is not bool(reasons)


def test_a_server_that_stands_still_is_reported_as_a_stall():
    """10 ms a request in a closed loop, and nothing between 3 s and 8 s: few answers, but no want of them."""
    due = np.concatenate([np.arange(0, 3, 0.01), np.arange(8, 10, 0.01)])
    done = due + 0.01
    done[299] = 8.0
    summary = judged(due, done)
    assert summary["longest_silence_s"] == pytest.approx(5.01) and summary["stalled"]
    assert summary["stable"] is False and "nobody was answered for 5.0 s, from 3.0 s on" in summary["stability"]


@pytest.mark.parametrize(
    ("due", "latency"),
    [
        (np.arange(0, 10, 0.01), 0.01),
        # Nobody asked for four seconds.
        (np.concatenate([np.arange(0, 3, 0.01), np.arange(7, 10, 0.01)]), 0.01),
        # A slow model, not a stalled server.
        (np.arange(0, 60, 2.0), 2.0),
        # Four clients whose requests are one batch of 2 s.
        (np.repeat(np.arange(0, 60, 2.0), 4), 2.0),
    ],
)
def test_slow_answers_and_pauses_of_the_load_are_no_stall(due, latency):
    assert judged(due, due + latency, seconds=60.0)["stalled"] is False


def test_failures_do_not_end_a_silence():
    due = np.arange(0, 10, 0.01)
    code = np.where((due > 2) & (due < 6), 14, 0)
    summary = judged(due, due + 0.005, code)
    assert summary["longest_silence_s"] == pytest.approx(4.0, abs=0.05) and summary["stalled"]
    assert summary["invalid_because"] == ["39.9% of the requests failed"] and not summary["valid"]


def test_a_dead_server_is_no_valid_point():
    due = np.arange(0, 10, 0.001)
    summary = judged(due, due + 0.0005, code=14)
    assert not summary["valid"] and summary["invalid_because"] == ["no request was answered"]
    assert summary["answered"] == 0 and summary["latency_ms"]["p50"] is None
    # One in a hundred may fail.
    some = judged(due, due + 0.0005, code=np.where(np.arange(len(due)) % 100 == 0, 8, 0))
    assert some["valid"] and some["errors"]["RESOURCE_EXHAUSTED"]["count"] == 100


def test_waiting_for_a_deadline_does_not_thin_out_the_answers():
    due = np.arange(0, 10, 0.1)
    code = np.where(due >= 9, 4, 0)
    summary = judged(due, np.where(due >= 9, due + 30, due + 0.01), code)
    assert summary["requests_per_second"] == pytest.approx(9.0)


@pytest.mark.parametrize(("slower", "offered"), [(1, 100), (2, pytest.approx(50, rel=0.01))])
def test_the_offered_rate_is_what_was_sent(slower, offered):
    due = due_times("constant", 100, 2.0)
    sent = slower * due
    assert judged(due, sent + 0.01, sent=sent, seconds=2.0)["offered_per_second"] == offered

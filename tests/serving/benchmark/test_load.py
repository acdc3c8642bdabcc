"""Closed and open loops against servers that answer, stall, fail, drop and answer wrongly."""

import threading
import time

import grpc
import numpy as np
import pytest

from serving.benchmark import answers, point, workload
from serving.benchmark.load import Driver, Effort, LoadShare, Samples, constant_arrivals
from serving.benchmark.point import generator_effort, generator_lag
from serving.benchmark.settings import BenchmarkSettings
from serving.benchmark.stand_in import StandIn, constant_answer
from serving.client import Connection
from tests.serving.benchmark.conftest import ANSWER, Numbered

WORKLOAD = workload.Workload(8, 1, "tokens", [b""], [{}])
LOOPS = {"open": {"due": constant_arrivals(100, 0.4)}, "closed": {"clients": 1}}
in_both_loops = pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)


def drive(behaviour=None, threads=4, due=None, clients=0, requests=(b"",), references=None, timeout_s=10.0, **options):
    with StandIn(behaviour, threads=threads) as server:
        return drive_at(server, due, clients, requests, references, timeout_s, **options)


def drive_at(server, due, clients=0, requests=(b"",), references=None, timeout_s=10.0, seconds=0.4, **options):
    driver = Driver(Connection(server.target, attempts=1))
    share = LoadShare(
        requests, references or [None] * len(requests), timeout_s, time.perf_counter() + 0.02, seconds,
        clients=clients, due=due, item_step=max(clients, 1), **options,
    )  # fmt: skip
    try:
        return driver.run(share)
    finally:
        driver.close()


class Recorder:
    """Notes the requests it gets and how many at once."""

    def __init__(self, seconds=0.0):
        self.seen, self.most, self._now, self._lock, self._seconds = [], 0, 0, threading.Lock(), seconds

    def __call__(self, request, context):
        with self._lock:
            self.seen.append(request)
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(self._seconds)
        with self._lock:
            self._now -= 1
        return ANSWER


def test_open_loop_sends_every_request_once_in_turn_and_not_early():
    recorder = Recorder()
    requests = [bytes([i]) for i in range(3)]
    samples = drive(recorder, 1, constant_arrivals(100, 0.3), requests=requests)
    assert len(samples.due) == 30 and sorted(recorder.seen) == sorted(requests * 10)
    assert samples.item.tolist() == [0, 1, 2] * 10
    assert (samples.code == 0).all()
    assert (samples.sent >= samples.due).all() and (samples.done >= samples.sent).all()


def test_closed_loop_keeps_as_many_in_flight_as_there_are_clients():
    recorder = Recorder(seconds=0.02)
    samples = drive(recorder, 8, clients=3)
    assert recorder.most == 3
    assert len(samples.due) == len(recorder.seen)
    # Each client waits for its answer: no more than one request each 20 ms.
    assert len(samples.due) <= 3 * (0.4 / 0.02 + 1)
    np.testing.assert_array_equal(samples.due, samples.sent)


def test_closed_loop_goes_on_for_the_least_number_of_requests():
    slow = Numbered(seconds=0.01)
    enough = drive(slow, clients=1, seconds=0.05, least_requests=40, longest_seconds=60.0)
    cut = drive(slow, clients=1, seconds=0.05, least_requests=1000, longest_seconds=0.2)
    assert 40 <= len(enough.due) <= 41 and len(cut.due) < 100


def test_a_stall_shows_in_the_open_loop_and_hides_in_the_closed_one():
    """Coordinated omission: in the stalled second the closed loop's client asks nothing, and records one sample."""

    def latencies(**loop):
        # Every request takes 2 ms, on one thread; the 20th takes a second.
        stalling = Numbered(lambda number, context: time.sleep(1.0) if number == 20 else None, seconds=0.002)
        samples = drive(stalling, 1, **loop)
        return (samples.done - samples.due) * 1000

    closed, opened = latencies(clients=1, seconds=1.5), latencies(due=constant_arrivals(100, 1.5))
    # Of an overloaded machine a few more may be slow.
    assert closed.max() > 1000 and (closed > 900).sum() == 1
    # 100 requests were due in the stalled second, and waited from then.
    assert (opened > 100).sum() > 60 and np.percentile(opened, 90) > 400


def test_latency_counts_from_when_a_request_was_due():
    due, sent, done = np.array([0.0, 1.0]), np.array([0.0, 1.5]), np.array([0.1, 1.6])
    samples = Samples(due, sent, done, np.zeros(2, np.uint8), np.zeros(2, int))
    assert samples.latencies_ms.tolist() == pytest.approx([100, 600])
    summary = point.summary(
        samples, LoadShare([b""], [None], 1.0, 0.0, 2.0, due=due), WORKLOAD, BenchmarkSettings(bound_ms=200.0)
    )
    assert summary["latency_ms"]["mean"] == pytest.approx(350) and summary["latency_ms"]["max"] == pytest.approx(600)
    assert summary["within_bound"] == 0.5 and summary["send_lag_ms"]["max"] == pytest.approx(500)
    assert summary["goodput_per_second"] == 0.5


def lagging(late_ms, of=200, late=10, latency_ms=5.0, timed_out=0):
    due = np.arange(of) / 100
    sent = due.copy()
    sent[:late] += late_ms / 1000
    done = sent + latency_ms / 1000
    code = np.zeros(of, np.uint8)
    code[of - timed_out :], done[of - timed_out :] = 4, due[of - timed_out :] + 30
    return Samples(due, sent, done, code, np.zeros(of, int))


@pytest.mark.parametrize(
    ("samples", "valid"),
    [
        (lagging(0.5), True),
        (lagging(3.0), False),
        (lagging(3.0, late=1), True),
        # Three milliseconds late do not matter beside a hundred.
        (lagging(3.0, latency_ms=100.0), True),
        # Requests that ran into their deadline excuse no lateness; those that were sent late count, answered or not.
        (lagging(3.0, timed_out=150), False),
        (lagging(3.0, late=200, timed_out=199), False),
    ],
)
def test_a_run_is_invalid_when_the_generator_fell_behind(samples, valid):
    lag = generator_lag(samples)
    assert lag["valid"] is valid
    assert lag["lag_ms"]["max"] == pytest.approx(((samples.sent - samples.due) * 1000).max())


def test_a_generator_held_up_for_real_is_found_out(monkeypatch):
    real_sleep = time.sleep
    monkeypatch.setattr("serving.benchmark.load.time.sleep", lambda seconds: real_sleep(seconds + 0.02))
    assert not generator_lag(drive(due=constant_arrivals(100, 0.5)))["valid"]


@in_both_loops
def test_errors_are_counted_by_status(loop):
    full = "Server Threadpool Exhausted"
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    unreliable = Numbered(lambda number, context: number % 4 == 0 and context.abort(exhausted, full))
    samples = drive(unreliable, 1, **loop)
    assert len(samples.code) == unreliable.calls
    assert (samples.code == exhausted.value[0]).sum() == unreliable.calls // 4
    assert (samples.code == 0).sum() == unreliable.calls - unreliable.calls // 4
    ((first_s, message),) = samples.messages.values()
    assert message == full and first_s == samples.done[samples.code == 8].min()


@in_both_loops
def test_late_answers_are_deadline_errors(loop):
    released = threading.Event()
    with StandIn(Numbered(lambda *_: released.wait(20) and None), threads=8) as server:
        samples = drive_at(server, **{"due": None, "timeout_s": 0.1} | loop)
        released.set()
    assert len(samples.code) and (samples.code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]).all()


def test_a_server_that_dies_leaves_errors_not_a_hang():
    server = StandIn(Numbered(lambda number, context: stopper.start() if number == 20 else None))
    stopper = threading.Thread(target=server.__exit__)
    server.__enter__()
    samples = drive_at(server, constant_arrivals(100, 0.8))
    stopper.join()
    assert (samples.code[:10] == 0).all() and (samples.code[-10:] != 0).all()


@in_both_loops
def test_wrong_answers_are_found_while_measuring(loop):
    liar = Numbered(lambda number, context: constant_answer((0.9, 0.1)) if number % 5 == 0 else None)
    samples = drive(liar, 1, references=[ANSWER], **loop)
    checked = answers.check(samples.differing, [answers.read_grpc(ANSWER)])["answers"]
    assert checked["wrong"] == liar.calls // 5 > 0
    assert checked["worst_difference"] == pytest.approx(0.65)


def test_the_generators_own_effort_is_noted():
    idle, busy = drive(Numbered(seconds=0.05), clients=1), drive(clients=4)
    for samples, clients in ((idle, 1), (busy, 4)):
        assert samples.effort.wall >= 0.4 and samples.effort.threads >= 0.4 * clients * 0.9
        assert 0 <= samples.effort.waiting <= samples.effort.threads
    assert generator_effort(busy.effort)[0] > 3 * generator_effort(idle.effort)[0]


def judged(due, done, code=0, seconds=10.0, effort=None, **changes):
    """The summary of a run whose requests were due, and done, at these times (seconds)."""
    due, done = np.asarray(due, float), np.asarray(done, float)
    samples = Samples(due, due, done, np.broadcast_to(code, due.shape).astype(np.uint8), np.zeros(due.shape, int))
    samples.effort = effort or samples.effort
    return point.summary(
        samples, LoadShare([b""], [None], 1.0, 0.0, seconds, clients=1), WORKLOAD, BenchmarkSettings(**changes)
    )


def test_a_generator_out_of_cpu_is_invalid():
    due = np.arange(0, 10, 0.01)
    assert judged(due, due + 0.001, effort=Effort(cpu=0.5, wall=1.0))["valid"]
    summary = judged(due, due + 0.001, effort=Effort(cpu=0.95, wall=1.0))
    assert summary["invalid_because"] == ["the generator ran out of CPU"] and not summary["valid"]


def test_a_server_that_stands_still_is_reported_as_a_stall():
    """10 ms a request in a closed loop, and nothing between 3 s and 8 s: few answers, but no want of them."""
    due = np.concatenate([np.arange(0, 3, 0.01), np.arange(8, 10, 0.01)])
    done = due + 0.01
    done[299] = 8.0
    summary = judged(due, done)
    assert summary["silence"] == {"seconds": pytest.approx(5.01), "began": pytest.approx(2.99), "stalled": True}
    assert summary["stable"] is False and "nobody was answered for 5.0 s, from 3.0 s on" in summary["stability"]


@pytest.mark.parametrize(
    ("due", "latency", "stalled"),
    [
        (np.arange(0, 10, 0.01), 0.01, False),
        # Nobody asked for four seconds.
        (np.concatenate([np.arange(0, 3, 0.01), np.arange(7, 10, 0.01)]), 0.01, False),
        # A slow model, not a stalled server.
        (np.arange(0, 60, 2.0), 2.0, False),
        # Four clients whose requests are one batch of 2 s.
        (np.repeat(np.arange(0, 60, 2.0), 4), 2.0, False),
    ],
)
def test_slow_answers_and_pauses_of_the_load_are_no_stall(due, latency, stalled):
    assert judged(due, due + latency, seconds=60.0)["silence"]["stalled"] is stalled


def test_the_timeline_counts_every_request_where_it_ended():
    due = np.arange(0, 6, 0.01)
    summary = judged(due, due + 0.001, code=np.where(due > 3, 14, 0), seconds=6.0)
    answered, failed = (np.array(summary["timeline"][name]) for name in ("answered", "failed"))
    assert summary["timeline"]["step_s"] == pytest.approx(0.1) and answered.sum() + failed.sum() == 600
    assert (answered[:29] >= 9).all() and not answered[31:].any() and (failed[31:] >= 9).all()


def test_failures_do_not_end_a_silence():
    due = np.arange(0, 10, 0.01)
    code = np.where((due > 2) & (due < 6), 14, 0)
    summary = judged(due, due + 0.005, code)
    assert summary["silence"]["seconds"] == pytest.approx(4.0, abs=0.05) and summary["silence"]["stalled"]
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


def test_the_offered_rate_is_what_was_sent():
    due = constant_arrivals(100, 2.0)
    share = LoadShare([b""], [None], 1.0, 0.0, 2.0, due=due)
    on_time = Samples(due, due, due + 0.01, np.zeros(200, np.uint8), np.zeros(200, int))
    assert point.offered(on_time, share) == 100
    assert point.offered(Samples(due, due * 2, due * 2 + 0.01, on_time.code, on_time.item), share) == pytest.approx(
        50, rel=0.01
    )

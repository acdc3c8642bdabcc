"""Batching: which requests run together, how they are padded, and what is refused."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.model_server.batch_scheduler import BatchScheduler
from serving.model_server.batching import BatchingOptions, BatchingRunner
from serving.model_server.status import StatusError
from serving.wire.protos import BatchingParameters


class Recorder:
    """Stands for a session: y = 2x, or what `answer` makes of the merged inputs; `gate` holds runs back."""

    def __init__(self, answer=None):
        self.runs = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self._answer = answer or (lambda feeds: [feeds["x"] * 2])

    def run(self, feeds, fetches, timeout=None):
        self.entered.release()
        self.gate.wait(10)
        self.runs.append((dict(feeds), list(fetches), timeout))
        return self._answer(feeds)

    def close(self):
        pass


@pytest.fixture
def scheduler():
    result = BatchScheduler(threads=1)
    yield result
    result.stop()


def runner(scheduler, recorder, **parameters):
    proto = BatchingParameters()
    for name, value in parameters.items():
        field = getattr(proto, name)
        if name == "allowed_batch_sizes":
            field.extend(value)
        elif name == "pad_variable_length_inputs":
            proto.pad_variable_length_inputs = value
        else:
            field.value = value
    return BatchingRunner(recorder, scheduler, BatchingOptions.from_proto(proto))


def x(*values):
    return {"x": np.array(values, np.float32).reshape(len(values), 1)}


def run_held(batching, recorder, requests, fetches=("y",), timeout=None):
    """Submits `requests` while the one batch thread is kept busy, so that they queue up in this order.

    Returns results or errors, in order.
    """
    recorder.gate.clear()
    with ThreadPoolExecutor(len(requests) + 1) as pool:
        blocker = pool.submit(batching.run, x(-1), ["blocker"])
        recorder.entered.acquire()
        futures = []
        for feeds in requests:
            futures.append(pool.submit(batching.run, feeds, list(fetches), timeout))
            wait_until_queued(batching, futures)
        recorder.gate.set()
        blocker.result()
        return [future.exception() or future.result() for future in futures]


def wait_until_queued(batching, futures):
    for _ in range(1000):
        queued = sum(len(b.tasks) for queue in batching._queues.values() for b in queue._batches)
        if queued + sum(future.done() for future in futures) >= len(futures):
            return
        threading.Event().wait(0.005)
    raise AssertionError("the request never reached the queue")


def sizes(recorder):
    return [len(feeds["x"]) for feeds, fetches, _ in recorder.runs if fetches != ["blocker"]]


def test_requests_are_joined_and_cut_apart(scheduler):
    recorder = Recorder()
    batching = runner(scheduler, recorder, max_batch_size=8)
    results = run_held(batching, recorder, [x(1), x(2, 3), x(4)])
    assert [r[0].tolist() for r in results] == [[[2]], [[4], [6]], [[8]]]
    assert sizes(recorder) == [4]


def test_a_batch_is_never_above_the_maximum(scheduler):
    recorder = Recorder()
    batching = runner(scheduler, recorder, max_batch_size=3)
    run_held(batching, recorder, [x(1, 2), x(3, 4), x(5)])
    assert sizes(recorder) == [2, 3]


def test_a_request_above_the_maximum_is_refused(scheduler):
    batching = runner(scheduler, Recorder(), max_batch_size=3)
    with pytest.raises(StatusError) as caught:
        batching.run(x(1, 2, 3, 4), ["y"])
    assert str(caught.value) == "INVALID_ARGUMENT: Task size 4 is larger than maximum input batch size 3"


def test_large_requests_are_split_when_asked_for(scheduler):
    recorder = Recorder()
    batching = runner(
        scheduler, recorder, max_batch_size=10, enable_large_batch_splitting=True, max_execution_batch_size=4
    )
    results = run_held(batching, recorder, [x(1), x(*range(2, 11))])
    assert results[1][0].ravel().tolist() == [2 * v for v in range(2, 11)]
    assert sizes(recorder) == [4, 4, 2]


def test_parts_of_unlike_shapes_cannot_be_joined(scheduler):
    recorder = Recorder(lambda feeds: [np.zeros((len(feeds["x"]), int(feeds["x"].max())))])
    split = {"max_batch_size": 10, "enable_large_batch_splitting": True, "max_execution_batch_size": 4}
    batching = runner(scheduler, recorder, **split)
    assert batching.run(x(1, 2, 3, 4, 4), ["y"])[0].shape == (5, 4)
    with pytest.raises(StatusError) as caught:
        batching.run(x(1, 2, 3, 4, 9), ["y"])
    assert str(caught.value) == (
        "INVALID_ARGUMENT: The request was split, and an output of its parts has rows of shapes (4,) and (9,), which "
        "cannot be joined: set enable_large_batch_splitting to false, or send fewer rows in a request"
    )


def test_a_full_queue_is_unavailable(scheduler):
    recorder = Recorder()
    batching = runner(scheduler, recorder, max_batch_size=1, max_enqueued_batches=2)
    *_, last = run_held(batching, recorder, [x(1), x(2), x(3)])
    assert str(last) == (
        "UNAVAILABLE: The batch scheduling queue to which this task was submitted is full; "
        "currently 2 batches enqueued and max_enqueued_batches is 2"
    )


def test_padding_to_allowed_sizes_repeats_the_last_task_s_first_row(scheduler):
    recorder = Recorder()
    batching = runner(scheduler, recorder, max_batch_size=8, allowed_batch_sizes=[2, 8])
    results = run_held(batching, recorder, [x(1), x(7, 8)])
    assert [r[0].tolist() for r in results] == [[[2]], [[14], [16]]]
    assert recorder.runs[-1][0]["x"].ravel().tolist() == [1, 7, 8, 7, 7, 7, 7, 7]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"max_batch_size": 4, "allowed_batch_sizes": [2, 8]},
            "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 8; expected 4",
        ),
        (
            {
                "max_batch_size": 8,
                "allowed_batch_sizes": [2, 4],
                "enable_large_batch_splitting": True,
                "max_execution_batch_size": 4,
            },
            "Last entry in allowed_batch_sizes must match max_batch_size; last entry was 4; expected 8",
        ),
        (
            {"max_batch_size": 4, "enable_large_batch_splitting": True, "max_execution_batch_size": 8},
            "max_batch_size must be greater than or equal to max_execution_batch_size; were 4 and 8",
        ),
        ({"max_batch_size": 0}, "max_batch_size must be positive; was 0"),
        ({"max_enqueued_batches": 0}, "max_enqueued_batches must be positive; was 0"),
        ({"batch_timeout_micros": -1}, "batch_timeout_micros must be non-negative; was -1"),
    ],
)
def test_sizes_that_cannot_be_met(scheduler, parameters, message):
    with pytest.raises(StatusError, match=message):
        runner(scheduler, Recorder(), **parameters)


def test_different_shapes_fail_the_whole_batch_without_padding(scheduler):
    recorder = Recorder()
    batching = runner(scheduler, recorder, max_batch_size=8)
    narrow, wide = {"x": np.zeros((1, 2))}, {"x": np.zeros((1, 3))}
    for result in run_held(batching, recorder, [narrow, wide]):
        assert str(result).startswith(
            "FAILED_PRECONDITION: Tensors with name 'x' from different tasks have different shapes and padding is "
            "turned off. Set pad_variable_length_inputs to true, "
        )


def test_variable_lengths_are_padded_with_the_request_s_own_first_element(scheduler):
    recorder = Recorder()
    batching = runner(scheduler, recorder, max_batch_size=8, pad_variable_length_inputs=True)
    run_held(batching, recorder, [{"x": np.array([[5, 6]])}, {"x": np.array([[7, 8, 9], [1, 2, 3]])}])
    assert recorder.runs[-1][0]["x"].tolist() == [[5, 6, 5], [7, 8, 9], [1, 2, 3]]


def test_other_outputs_never_share_a_batch(scheduler):
    recorder = Recorder()
    batching = runner(scheduler, recorder, max_batch_size=8)
    recorder.gate.clear()
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(batching.run, x(1), [name]) for name in ("a", "b", "b")]
        wait_until_queued(batching, futures[:2])
        recorder.gate.set()
        for future in futures:
            future.result()
    assert {tuple(fetches) for _, fetches, _ in recorder.runs} == {("a",), ("b",)}


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "Batching Run() must have at least one input tensor"),
        ({"x": np.float32(1)}, "Batching Run() input tensors must have at least one dimension"),
        (
            {"x": np.zeros(2), "z": np.zeros(3)},
            "Batching Run() input tensors must have equal 0th-dimension size",
        ),
    ],
)
def test_inputs_that_cannot_be_batched(scheduler, feeds, message):
    with pytest.raises(StatusError) as caught:
        runner(scheduler, Recorder()).run(feeds, ["y"])
    assert str(caught.value) == f"INVALID_ARGUMENT: {message}"


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (np.float32(1), "Batched output tensor has 0 dimensions"),
        (
            np.zeros(5),
            "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the "
            "input tensors",
        ),
    ],
)
def test_outputs_that_cannot_be_cut(scheduler, output, message):
    with pytest.raises(StatusError) as caught:
        runner(scheduler, Recorder(lambda feeds: [output])).run(x(1), ["y"])
    assert str(caught.value) == f"FAILED_PRECONDITION: {message}"


def test_a_graph_error_reaches_every_request_of_the_batch(scheduler):
    def fail(feeds):
        raise tf.errors.InvalidArgumentError(None, None, "boom")

    recorder = Recorder(fail)
    batching = runner(scheduler, recorder)
    recorder._answer = lambda feeds: [feeds["x"]] if feeds["x"][0, 0] == -1 else fail(feeds)
    for result in run_held(batching, recorder, [x(1), x(2)]):
        assert str(result) == "INVALID_ARGUMENT: boom"


def test_time_limits(scheduler):
    recorder = Recorder()
    batching = runner(scheduler, recorder)
    recorder.gate.clear()
    with ThreadPoolExecutor(4) as pool:
        blocker = pool.submit(batching.run, x(-1), ["blocker"])
        recorder.entered.acquire()
        expired = pool.submit(batching.run, x(1), ["a"], 0.001)
        patient = [pool.submit(batching.run, x(1), ["b"], limit) for limit in (0.001, 60)]
        wait_until_queued(batching, [expired, *patient])
        threading.Event().wait(0.05)
        recorder.gate.set()
        blocker.result()
        with pytest.raises(StatusError, match="timeout exceeded while waiting in batching queue") as caught:
            expired.result()
        assert caught.value.code.name == "RESOURCE_EXHAUSTED"
        for future in patient:
            future.result()
    limits = [timeout for _, fetches, timeout in recorder.runs if fetches == ["b"]]
    assert len(limits) == 1
    assert 50 < limits[0] <= 60


def test_timeout_waits_for_company_but_a_full_batch_goes_at_once(scheduler):
    recorder = Recorder()
    batching = runner(scheduler, recorder, max_batch_size=2, batch_timeout_micros=30_000_000)
    with ThreadPoolExecutor(2) as pool:
        results = [future.result(10) for future in [pool.submit(batching.run, x(v), ["y"]) for v in (1, 2)]]
    assert sorted(float(r[0].item()) for r in results) == [2, 4]
    assert sizes(recorder) == [2]


@settings(max_examples=30, deadline=None)
@given(
    requests=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    allowed=st.sampled_from([[], [8], [1, 2, 4, 8], [3, 8]]),
    split=st.booleans(),
)
def test_everyone_gets_their_own_rows(requests, allowed, split):
    scheduler = BatchScheduler(threads=2)
    batching = runner(
        scheduler, Recorder(), max_batch_size=8, allowed_batch_sizes=allowed, enable_large_batch_splitting=split,
        max_enqueued_batches=100,
    )  # fmt: skip
    feeds = [x(*(100 * index + row for row in range(count))) for index, count in enumerate(requests)]
    with ThreadPoolExecutor(len(feeds)) as pool:
        results = list(pool.map(lambda f: batching.run(f, ["y"])[0], feeds))
    for given_, got in zip(feeds, results, strict=True):
        np.testing.assert_array_equal(got, given_["x"] * 2)
    batching.close()
    scheduler.stop()


def test_a_queue_lives_as_long_as_somebody_waits_in_it(scheduler):
    recorder = Recorder()
    batching = runner(scheduler, recorder, max_batch_size=8)
    run_held(batching, recorder, [x(1), {"x": np.zeros((1, 1), np.int64)}, {"x": np.zeros((1, 1, 1))}])
    assert len(recorder.runs) == 4
    assert not batching._queues
    assert not scheduler._queues


def test_a_split_request_runs_on_several_threads(scheduler):
    scheduler = BatchScheduler(threads=4)
    together = threading.Barrier(4, timeout=10)
    recorder = Recorder(lambda feeds: [feeds["x"] * (1 + bool(together.wait() >= 0))])
    batching = runner(
        scheduler, recorder, max_batch_size=4, enable_large_batch_splitting=True, max_execution_batch_size=1
    )
    assert batching.run(x(1, 2, 3, 4), ["y"])[0].ravel().tolist() == [2, 4, 6, 8]
    scheduler.stop()

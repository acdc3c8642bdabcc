"""Batching: which requests run together, how they are padded, and what is refused."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import yaml
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from serving.model_server.batching import BatchingOptions, BatchingRunner, BatchScheduler
from serving.model_server.status import StatusError, invalid_argument
from serving.wire.protos import BatchingParameters
from tests.serving.model_server.conftest import wait_until

SPLITTING = "enable_large_batch_splitting { value: true } max_execution_batch_size { value: 4 } "
SPLIT = SPLITTING + "max_batch_size { value: 10 } "
EIGHT = "max_batch_size { value: 8 } "


class Batched:
    """Batching in front of what stands for a session: y = 2x, or what `answer` makes of the merged inputs."""

    def __init__(self, parameters="", answer=lambda feeds: [feeds["x"] * 2], threads=1):
        self.runs, self.answer, self.scheduler = [], answer, BatchScheduler(threads)
        self.signatures, self.close = {}, None
        self._gate, self._entered = threading.Event(), threading.Semaphore(0)
        self._gate.set()
        options = BatchingOptions(text_format.Parse(parameters, BatchingParameters()))
        self.batching = BatchingRunner(self, self.scheduler, options)

    def run(self, feeds, fetches, timeout=None):
        self._entered.release()
        self._gate.wait(60)
        if fetches != ["blocker"]:
            self.runs.append((dict(feeds), list(fetches), timeout))
            return self.answer(feeds)
        return [feeds["x"]]

    def ask(self, *requests):
        """Sends (feeds, fetches, timeout) while the one batch thread is busy, so that they queue up in this order.

        Returns results or errors, in order.
        """
        self._gate.clear()
        with ThreadPoolExecutor(len(requests) + 1) as pool:
            blocker = pool.submit(self.batching.run, x(-1), ["blocker"])
            self._entered.acquire()
            futures = []
            for feeds, *how in requests:
                futures.append(pool.submit(self.batching.run, feeds, *(how or (["y"],))))
                wait_until(lambda: self._waiting() + sum(f.done() for f in futures) >= len(futures))
            self.before_the_run()
            self._gate.set()
            blocker.result()
            return [future.exception() or future.result()[0].tolist() for future in futures]

    def _waiting(self):
        return sum(len(batch.tasks) for queue in self.batching._queues.values() for batch in queue._batches)

    def before_the_run(self):
        """When everything is in its queue."""


def x(*values):
    return {"x": np.array(values, np.float32).reshape(len(values), 1)}


# Parameters, the rows of each request, and those of the batches that run.
JOINED = yaml.safe_load("""
- ["max_batch_size { value: 8 }", [[1], [2, 3], [4]], [[1, 2, 3, 4]]]
- ["max_batch_size { value: 3 }", [[1, 2], [3, 4], [5]], [[1, 2], [3, 4, 5]]]
# Padded with the last task's first row.
- ["max_batch_size { value: 8 } allowed_batch_sizes: [2, 8]", [[1], [7, 8]], [[1, 7, 8, 7, 7, 7, 7, 7]]]
- ["max_batch_size { value: 8 } allowed_batch_sizes: [2, 8]", [[1], [7]], [[1, 7]]]
# Split: what the open batch takes, then whole batches.
- ["max_batch_size { value: 10 } enable_large_batch_splitting { value: true } max_execution_batch_size { value: 4 }",
   [[1], [2, 3, 4, 5, 6, 7, 8, 9, 10]], [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]]
""")


@pytest.mark.parametrize("parameters, requests, batches", JOINED)
def test_requests_are_joined_padded_and_cut_apart(parameters, requests, batches):
    batched = Batched(parameters)
    results = batched.ask(*((x(*values),) for values in requests))
    assert results == [[[2 * value] for value in values] for values in requests]
    assert [feeds["x"].ravel().tolist() for feeds, _, _ in batched.runs] == batches
    # A queue lives as long as somebody waits in it.
    assert not batched.batching._queues and not batched.scheduler.queues


def test_parts_of_unlike_shapes_cannot_be_joined():
    batching = Batched(SPLIT, lambda feeds: [np.zeros((len(feeds["x"]), int(feeds["x"].max())))]).batching
    assert batching.run(x(1, 2, 3, 4, 4), ["y"])[0].shape == (5, 4)
    with pytest.raises(StatusError) as caught:
        batching.run(x(1, 2, 3, 4, 9), ["y"])
    assert str(caught.value) == (
        "INVALID_ARGUMENT: The request was split, and an output of its parts has rows of shapes (4,) and (9,), which "
        "cannot be joined: set enable_large_batch_splitting to false, or send fewer rows in a request"
    )


def test_a_full_queue_is_unavailable():
    batched = Batched("max_batch_size { value: 1 } max_enqueued_batches { value: 2 }")
    assert [str(result) for result in batched.ask((x(1),), (x(2),), (x(3),))] == [
        "[[2.0]]", "[[4.0]]",
        "UNAVAILABLE: The batch scheduling queue to which this task was submitted is full; "
        "currently 2 batches enqueued and max_enqueued_batches is 2"
    ]  # fmt: skip


SIZES = """
max_batch_size { value: 4 } allowed_batch_sizes: [2, 8] | LAST 8; expected 4
SPLITTING max_batch_size { value: 10 } allowed_batch_sizes: [2, 4] | LAST 4; expected 10
SPLITTING max_batch_size { value: 3 } | must be greater than or equal to max_execution_batch_size; were 3 and 4
max_batch_size { value: 0 } | max_batch_size must be positive; was 0
max_enqueued_batches { value: 0 } | max_enqueued_batches must be positive; was 0
batch_timeout_micros { value: -1 } | batch_timeout_micros must be non-negative; was -1
""".replace("SPLITTING", SPLITTING).replace(
    "LAST", "Last entry in allowed_batch_sizes must match max_batch_size; last entry was"
)


@pytest.mark.parametrize("parameters, message", [line.split(" | ") for line in SIZES.strip().splitlines()])
def test_sizes_that_cannot_be_met(parameters, message):
    with pytest.raises(StatusError, match=message):
        Batched(parameters)


@pytest.mark.parametrize(
    "feeds, output, status",
    [
        (x(1, 2, 3, 4), None, "INVALID_ARGUMENT: Task size 4 is larger than maximum input batch size 3"),
        ({}, None, "INVALID_ARGUMENT: Batching Run() must have at least one input tensor"),
        ({"x": np.float32(1)}, None,
         "INVALID_ARGUMENT: Batching Run() input tensors must have at least one dimension"),
        ({"x": np.zeros(2), "z": np.zeros(3)}, None,
         "INVALID_ARGUMENT: Batching Run() input tensors must have equal 0th-dimension size"),
        (x(1), np.float32(1), "FAILED_PRECONDITION: Batched output tensor has 0 dimensions"),
        (x(1), np.zeros(5), "FAILED_PRECONDITION: Batched output tensor's 0th dimension does not equal the sum of the "
         "0th dimension sizes of the input tensors")
    ]
)  # fmt: skip
def test_inputs_and_outputs_that_cannot_be_batched(feeds, output, status):
    with pytest.raises(StatusError) as caught:
        Batched("max_batch_size { value: 3 }", lambda feeds: [output]).batching.run(feeds, ["y"])
    assert str(caught.value) == status


def test_different_shapes_fail_the_whole_batch_without_padding():
    for result in Batched(EIGHT).ask(({"x": np.zeros((1, 2))},), ({"x": np.zeros((1, 3))},)):
        assert str(result).startswith(
            "FAILED_PRECONDITION: Tensors with name 'x' from different tasks have different shapes and padding is "
            "turned off. Set pad_variable_length_inputs to true, "
        )


def test_variable_lengths_are_padded_with_the_request_s_own_first_element():
    batched = Batched(EIGHT + "pad_variable_length_inputs: true")
    batched.ask(({"x": np.array([[5, 6]])},), ({"x": np.array([[7, 8, 9], [1, 2, 3]])},))
    ((feeds, _, _),) = batched.runs
    assert feeds["x"].tolist() == [[5, 6, 5], [7, 8, 9], [1, 2, 3]]


def test_other_outputs_dtypes_and_ranks_never_share_a_batch():
    batched = Batched(EIGHT)
    kinds = [(x(1), ["a"]), (x(1), ["b"]), (x(1), ["b"]), ({"x": np.zeros((1, 1), np.int64)}, ["b"])]
    batched.ask(*kinds, ({"x": np.zeros((1, 1, 1))}, ["b"]))
    assert sorted((fetches, feeds["x"].shape) for feeds, fetches, _ in batched.runs) == [
        (["a"], (1, 1)), (["b"], (1, 1)), (["b"], (1, 1, 1)), (["b"], (2, 1))
    ]  # fmt: skip


def test_a_graph_error_reaches_every_request_of_the_batch():
    def fail(feeds):
        raise invalid_argument("boom")

    first, second = Batched(answer=fail).ask((x(1),), (x(2),))
    assert str(first) == str(second) == "INVALID_ARGUMENT: boom"
    assert first is not second, "raised by two threads, one would tangle its tracebacks"


def test_time_limits(monkeypatch):
    """A batch has the time of its most patient request; one whose time is up before it runs is not run."""
    batched, now = Batched(), time.monotonic()
    monkeypatch.setattr("serving.model_server.batching.time.monotonic", lambda: now)

    def wait_a_second():
        nonlocal now
        now += 1.0

    batched.before_the_run = wait_a_second
    requests = [(x(1), ["a"], 0.5), (x(1), ["b"], 0.5), (x(1), ["b"], 60), (x(1), ["c"], 60), (x(1), ["c"], None)]
    expired, *patient = batched.ask(*requests)
    assert str(expired) == "RESOURCE_EXHAUSTED: Run() timeout exceeded while waiting in batching queue"
    assert patient == [[[2.0]]] * 4
    assert {name: timeout for _, (name,), timeout in batched.runs} == {"b": pytest.approx(59), "c": None}


def test_timeout_waits_for_company_but_a_full_batch_goes_at_once():
    batched = Batched("max_batch_size { value: 2 } batch_timeout_micros { value: 3000000000 }")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(batched.batching.run, x(1), ["y"])
        wait_until(lambda: batched._waiting() or batched.runs)
        (queue,) = batched.batching._queues.values()
        assert queue.ready_at() > time.monotonic() + 2000
        results = [future.result(60) for future in [first, pool.submit(batched.batching.run, x(2), ["y"])]]
    assert sorted(float(result[0].item()) for result in results) == [2, 4]
    assert len(batched.runs) == 1


@given(
    requests=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    allowed=st.sampled_from(["", "allowed_batch_sizes: 8", "allowed_batch_sizes: [1, 2, 4, 8]"]),
    split=st.sampled_from(["", " enable_large_batch_splitting { value: true }"]),
)
def test_everyone_gets_their_own_rows(requests, allowed, split):
    batched = Batched(EIGHT + "max_enqueued_batches { value: 100 } " + allowed + split, threads=2)
    feeds = [x(*(100 * index + row for row in range(count))) for index, count in enumerate(requests)]
    with ThreadPoolExecutor(len(feeds)) as pool:
        results = list(pool.map(lambda f: batched.batching.run(f, ["y"])[0], feeds))
    for sent, got in zip(feeds, results, strict=True):
        np.testing.assert_array_equal(got, sent["x"] * 2)
    batched.scheduler.stop()


def test_a_split_request_runs_on_several_threads():
    together = threading.Barrier(4, timeout=60)
    batched = Batched(
        SPLITTING.replace("4", "1") + "max_batch_size { value: 4 }",
        lambda feeds: [feeds["x"] * (1 + bool(together.wait() >= 0))],
        threads=4,
    )
    assert batched.batching.run(x(1, 2, 3, 4), ["y"])[0].ravel().tolist() == [2, 4, 6, 8]

"""Requests of more rows than a batching server takes: sent in parts, and answered as if they had been sent whole."""

import asyncio
import time

import grpc
import numpy as np
import pytest

from serving.benchmark.stand_in import StandIn
from serving.client import AsyncClient, Client, ServingError
from serving.client.messages import join_batches
from serving.wire import protos
from serving.wire.tensors import fill_tensor, read_tensor
from tfrecords.base.errors import UserError


class Batching:
    """A server that takes at most `limit` rows of `x`. It answers x, its double, and a row as long as each x says."""

    def __init__(self, limit: int):
        self.limit, self.version = limit, 1
        self.rows, self.asked = [], []
        self.before = lambda x: None

    def __call__(self, request: bytes, context) -> bytes:
        asked = protos.PredictRequest.FromString(request)
        x = read_tensor(asked.inputs["x"])
        self.asked.append(asked)
        self.rows.append(len(x) if x.ndim else 0)
        self.before(x)
        if (version := asked.model_spec.version.value or self.version) != self.version:
            context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Specific(default, {version})")
        if x.ndim and len(x) > self.limit:
            message = f"Task size {len(x)} is larger than maximum input batch size {self.limit}"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
        if 13 in x:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no 13")
        answer = protos.PredictResponse()
        answer.model_spec.version.value = self.version
        places = np.arange(max(x.astype(int), default=0))
        present = places < x.astype(int)[:, None]
        outputs = {
            "x": x,
            "double": 2 * x,
            "by": np.full(len(x), self.version),
            "words": np.where(present, np.array([b"w%d" % place for place in places], object), b""),
            "start_log_probs": np.where(present, -1.5, -1e30).astype(np.float32),
            "total": np.array(x.sum()),
        }
        for name in asked.output_filter or outputs.keys() - {"total"}:
            fill_tensor(answer.outputs[name], outputs[name])
        return answer.SerializeToString()


@pytest.fixture
def batching():
    return Batching(limit=4)


@pytest.fixture
def served(batching):
    with StandIn(batching, inputs={"x": (1, 1)}) as server:
        yield server.target


X = [3, 1.5, 4, 1, 5, 9, 2, 6, 5, 3]


def whole() -> dict:
    with StandIn(Batching(limit=100)) as server, Client(server.target, "default") as client:
        return client.predict({"x": X})


def assert_equal(answer: dict, expected: dict) -> None:
    assert {name: (array.dtype, array.tolist()) for name, array in answer.items()} == {
        name: (array.dtype, array.tolist()) for name, array in expected.items()
    }


def test_the_server_says_how_many_rows_it_takes_and_is_sent_no_more_again(batching, served):
    with Client(served, "default") as client:
        assert_equal(client.predict({"x": X}), whole())
        assert batching.rows == [10, 4, 4, 2]
        assert client.max_batch_rows == 4
        assert client.predict({"x": X[:6]}, outputs=["double"])["double"].tolist() == [2 * x for x in X[:6]]
    assert batching.rows[4:] == [4, 2]
    assert [list(asked.output_filter) for asked in batching.asked[4:]] == [["double"]] * 2


def test_who_knows_the_limit_is_refused_nothing(batching, served):
    with Client(served, "default", max_batch_rows=3) as client:
        assert_equal(client.predict({"x": X}), whole())
    assert batching.rows == [3, 3, 3, 1]
    with pytest.raises(UserError, match="max_batch_rows is 0; it must be at least 1"):
        Client(served, "default", max_batch_rows=0)


def test_the_asyncio_client_does_the_same(batching, served):
    async def ask():
        async with AsyncClient(served, "default") as client:
            return await client.predict({"x": X})

    assert_equal(asyncio.run(ask()), whole())
    assert batching.rows == [10, 4, 4, 2]


def test_a_server_that_takes_fewer_rows_than_before_is_asked_in_smaller_parts(batching, served):
    def shrink(x):
        batching.limit = 2 if len(batching.rows) > 1 else 4

    batching.before = shrink
    with Client(served, "default", max_batch_rows=4) as client:
        assert_equal(client.predict({"x": X}), whole())
    assert batching.rows == [4, 4, 2, 2, 2]


@pytest.mark.parametrize("place", [1, 5, 9])
def test_the_error_of_one_part_is_that_of_the_request(batching, served, place):
    x = X.copy()
    x[place] = 13
    with Client(served, "default", max_batch_rows=4) as client, pytest.raises(ServingError, match="no 13"):
        client.predict({"x": x})
    assert len(batching.rows) == place // 4 + 1, "what comes after it is not sent"


def test_all_parts_are_answered_by_one_version(batching, served):
    def swap(x):
        batching.version = 2 if len(batching.rows) > 2 else 1

    batching.before = swap
    with Client(served, "default", label="stable", max_batch_rows=4) as client:
        answer = client.predict({"x": X})
    assert answer["x"].tolist() == X and answer["by"].tolist() == [2] * 10
    specs = [(asked.model_spec.version_label, asked.model_spec.version.value) for asked in batching.asked]
    assert specs == [("stable", 0), ("", 1), *[("", 1)] * 4, ("stable", 0), ("", 2), ("", 2)]


def test_servers_of_unlike_versions_behind_one_name_answer_by_one(batching, served):
    """As nodes with unlike CPUs are: each call goes to the next."""

    def turn(x):
        batching.version = 1 + len(batching.rows) % 2

    batching.before = turn
    with Client(served, "default", max_batch_rows=4) as client:
        answer = client.predict({"x": X})
    assert answer["x"].tolist() == X and answer["by"].tolist() == [2] * 10


def test_versions_that_never_last_for_a_whole_request_are_an_error(batching, served):
    def swap(x):
        batching.version += 1

    batching.before = swap
    with Client(served, "default", max_batch_rows=4) as client, pytest.raises(ServingError, match="NOT_FOUND"):
        client.predict({"x": X})


def test_parts_have_the_time_of_one_call_together(batching, served, monkeypatch):
    batching.before = lambda x: time.sleep(0.05)
    limits = []
    with Client(served, "default", max_batch_rows=4) as client:
        call = client._predict
        monkeypatch.setattr(client, "_predict", lambda *asked, timeout, **more: limits.append(timeout) or call(
            *asked, timeout=timeout, **more))  # fmt: skip
        client.predict({"x": X}, timeout_s=20)
    assert 20 >= limits[0] > limits[1] + 0.04 > limits[2] + 0.08


def test_what_has_no_rows_is_not_cut(batching, served):
    with Client(served, "default", max_batch_rows=4) as client:
        with pytest.raises(UserError, match="output 'total'"):
            client.predict({"x": X}, outputs=["total"])
        client.predict({"x": np.zeros(0, np.float32)}, outputs=["x"])
    assert batching.rows[-1] == 0


def test_a_limit_that_means_nothing_is_an_error(batching, served):
    batching.limit = 0
    with Client(served, "default") as client, pytest.raises(ServingError, match="larger than maximum"):
        client.predict({"x": X})
    assert batching.rows == [10]


def test_log_probabilities_are_filled_with_what_is_impossible():
    parts = [{"start_log_probs": np.zeros((1, 2), np.float32)}, {"start_log_probs": np.zeros((1, 1), np.float32)}]
    joined = join_batches(parts, [np.array([1]), np.array([0])])["start_log_probs"]
    assert joined.tolist() == [[0.0, np.float32(-1e30)], [0.0, 0.0]]

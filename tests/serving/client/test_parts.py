"""Requests of more rows than a batching server takes: sent in parts, and answered as if they had been sent whole."""

import contextlib
import time

import grpc
import numpy as np
import pytest

from serving.client import Client, ServingError
from serving.wire import protos
from serving.wire.tensors import fill_tensor, read_tensor
from tests.refusals import refused
from tests.stand_in import StandIn


class Batching:
    """A server that takes at most `limit` rows of `x`. It answers x, its double, and a row as long as each x says."""

    def __init__(self, limit):
        self.limit, self.version = limit, 1
        self.rows, self.asked = [], []
        self.before = lambda x: None

    def __call__(self, request, context):
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


X = [3, 1.5, 4, 1, 5, 9, 2, 6, 5, 3]


@pytest.fixture
def batching():
    return Batching(limit=4)


@pytest.fixture
def client_of(batching):
    """client_of(**options): a client of it."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(StandIn(batching, inputs={"x": (1, 1)}))
        yield lambda **options: stack.enter_context(Client(server.target, "default", **options))


@pytest.fixture
def client(client_of):
    return client_of(max_batch_rows=4)


def assert_whole(answer):
    """That it is the answer to X of a server that takes all of it."""
    with StandIn(Batching(limit=100)) as server, Client(server.target, "default") as client:
        expected = client.predict({"x": X})
    assert {name: (array.dtype, array.tolist()) for name, array in answer.items()} == {
        name: (array.dtype, array.tolist()) for name, array in expected.items()
    }


def test_the_server_says_how_many_rows_it_takes_and_is_sent_no_more_again(batching, client_of):
    client = client_of()
    assert_whole(client.predict({"x": X}))
    assert batching.rows == [10, 4, 4, 2] and client.max_batch_rows == 4
    assert client.predict({"x": X[:6]}, outputs=["double"])["double"].tolist() == [2 * x for x in X[:6]]
    assert batching.rows[4:] == [4, 2]
    assert [list(asked.output_filter) for asked in batching.asked[4:]] == [["double"]] * 2


def test_who_knows_the_limit_is_refused_nothing(batching, client_of):
    assert_whole(client_of(max_batch_rows=3).predict({"x": X}))
    assert batching.rows == [3, 3, 3, 1]
    with refused("max_batch_rows is 0; it must be at least 1"):
        client_of(max_batch_rows=0)


def test_a_server_that_takes_fewer_rows_than_before_is_asked_in_smaller_parts(batching, client):
    batching.before = lambda x: setattr(batching, "limit", 2 if len(batching.rows) > 1 else 4)
    assert_whole(client.predict({"x": X}))
    assert batching.rows == [4, 4, 2, 2, 2]


@pytest.mark.parametrize("place", [1, 5, 9])
def test_the_error_of_one_part_is_that_of_the_request(batching, client, place):
    with pytest.raises(ServingError, match="no 13"):
        client.predict({"x": [*X[:place], 13, *X[place + 1 :]]})
    assert len(batching.rows) == place // 4 + 1, "what comes after it is not sent"


@pytest.mark.parametrize(
    "version_of, specs",
    [
        # A swap while a request is under way.
        (lambda call: 1 + (call > 2), [("stable", 0), *[("", 1)] * 5, ("stable", 0), ("", 2), ("", 2)]),
        # Servers of unlike versions behind one name, as nodes with unlike CPUs are: each call goes to the next.
        (lambda call: 1 + call % 2, None),
        # Versions that never last for a whole request.
        (lambda call: call, "NOT_FOUND"),
    ],
    ids=["swap", "unlike", "never"],
)
def test_all_parts_are_answered_by_one_version(batching, client_of, version_of, specs):
    batching.before = lambda x: setattr(batching, "version", version_of(len(batching.rows)))
    client = client_of(label="stable", max_batch_rows=4)
    if specs == "NOT_FOUND":
        with pytest.raises(ServingError, match=specs):
            client.predict({"x": X})
        return
    answer = client.predict({"x": X})
    assert answer["x"].tolist() == X and answer["by"].tolist() == [2] * 10
    asked = [(one.model_spec.version_label, one.model_spec.version.value) for one in batching.asked]
    assert specs is None or asked == specs


def test_parts_have_the_time_of_one_call_together(batching, client, monkeypatch):
    batching.before = lambda x: time.sleep(0.05)
    limits, call = [], client._predict_stub
    monkeypatch.setattr(client, "_predict_stub", lambda *asked, timeout, **more: limits.append(timeout) or call(
        *asked, timeout=timeout, **more))  # fmt: skip
    client.predict({"x": X}, timeout_s=20)
    assert 20 >= limits[0] > limits[1] + 0.04 > limits[2] + 0.08


def test_what_has_no_rows_is_not_cut(batching, client):
    with refused("output 'total'"):
        client.predict({"x": X}, outputs=["total"])
    client.predict({"x": np.zeros(0, np.float32)}, outputs=["x"])
    assert batching.rows[-1] == 0


def test_a_limit_that_means_nothing_is_an_error(batching, client_of):
    batching.limit = 0
    with pytest.raises(ServingError, match="larger than maximum"):
        client_of().predict({"x": X})
    assert batching.rows == [10]

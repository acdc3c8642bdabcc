"""The model behind a client changes, or its connection dies without a word."""

import contextlib
import time

import numpy as np
import pytest

from serving.client import Client, ServingError, channel
from tests.serving.client.test_client import IDS
from tests.serving.gateway.conftest import vector
from tests.stand_in import StandIn, constant_answer


@pytest.mark.parametrize("version", [1, 2])
def test_another_model_is_asked_by_its_own_signatures(fake_server, front_of, version):
    front = front_of(fake_server("classifier")[1].target)
    with Client(front.target, "default") as client:
        client.classify(["a"])
        front.point_at(fake_server("cross-encoder")[1].target, version)
        assert client.rerank("a", ["b"]).shape == (1,)
        assert client.classify([("a", "b")])["label"].shape == (1,)
        front.point_at(fake_server("embedder")[1].target, version)
        np.testing.assert_array_equal(client.embed(["a"]), [vector(b"a")])
        assert client.predict_text(["b", "a"])["embedding"].shape[0] == 2


@pytest.mark.parametrize("timeout_s", [0.3, 101])
def test_a_connection_that_died_without_a_word_is_replaced(relay, monkeypatch, timeout_s):
    """Also for new clients of the process, which share connections; with times of a second in place of 20 s."""
    quick = (("grpc.keepalive_time_ms", 500), ("grpc.http2.ping_timeout_ms", 500), ("grpc.keepalive_timeout_ms", 500))
    monkeypatch.setattr(channel, "_PINGS", (*quick, ("grpc.keepalive_permit_without_calls", 1)))
    monkeypatch.setattr(channel, "_RARE_PINGS", quick)
    with StandIn(lambda *_: constant_answer()) as server:
        between = relay(server.target)
        with Client(between.target, "default") as first:
            first.predict(IDS, timeout_s=timeout_s)
            between.die()
            for _ in range(40):
                with contextlib.suppress(ServingError), Client(between.target, "default") as client:
                    client.predict(IDS, timeout_s=timeout_s)
                    break
                time.sleep(0.1)
            else:
                raise AssertionError("the connection was used on")
            first.predict(IDS, timeout_s=timeout_s)

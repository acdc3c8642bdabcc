"""The id of a request through client, gateway and server; the log of requests; headers for browsers."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import pytest

from serving.client import Client, ServingError, request_id
from serving.gateway.keys import Keys
from serving.gateway.scheduler import Limits
from serving.wire import protos
from tests.serving.gateway.conftest import wait_until

MADE = re.compile("[0-9a-f]{32}")


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def ids_of(model) -> list[str]:
    return [one["x-request-id"] for one in model.metadata]


@pytest.mark.parametrize("given", ["order-7", "a" * 1024])
def test_an_id_goes_through_and_comes_back(given, fake_server, gateway_to, tmp_path):
    model, stand_in = fake_server("embedder")
    log = tmp_path / "log"
    gateway = gateway_to(stand_in.target, access_log=str(log))
    model.metadata.clear()
    answer = gateway.http.post("/embed", json={"inputs": "a text"}, headers={"X-Request-Id": given})
    assert answer.headers["x-request-id"] == given
    assert set(ids_of(model)) == {given}
    (line,) = lines(log)
    assert (line["request_id"], line["call"], line["status"], line["error"]) == (given, "POST /embed", 200, None)
    assert 0 < line["model_milliseconds"] < line["milliseconds"]


@pytest.mark.parametrize("given", [None, "", "two words", "a" * 1025, "ä", "a;b"])
def test_without_a_plain_id_one_is_made(given, fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target)
    model.metadata.clear()
    headers = {} if given is None else {"X-Request-Id": given.encode()}
    own = gateway.http.post("/embed", json={"inputs": "a"}, headers=headers).headers["x-request-id"]
    assert MADE.fullmatch(own) and set(ids_of(model)) == {own}


def test_texts_are_logged_only_where_that_is_asked(fake_server, gateway_to, tmp_path):
    _, stand_in = fake_server("embedder")
    for log_bodies in (False, True):
        log = tmp_path / f"log{log_bodies}"
        gateway = gateway_to(stand_in.target, access_log=str(log), log_bodies=log_bodies)
        for body in (b'{"inputs": "a secret"}', b'{"inputs": "a secret", "no field": 1}', b"a secret"):
            gateway.http.post("/embed", content=body)
        gateway.http.get("/health")
        assert [line["status"] for line in lines(log)] == [200, 400, 400]
        assert ("secret" in log.read_text()) == log_bodies
        assert all(MADE.fullmatch(line["request_id"]) for line in lines(log))


def test_an_error_is_logged_with_its_code_and_has_an_id(fake_server, gateway_to, tmp_path):
    _, stand_in = fake_server("embedder")
    log = tmp_path / "log"
    gateway = gateway_to(stand_in.target, access_log=str(log), keys=Keys(["alpha"]))
    answer = gateway.http.get("/metrics", headers={"X-Request-Id": "seven"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (401, "seven")
    (line,) = lines(log)
    assert (line["status"], line["error"], line["request_id"]) == (401, "invalid_api_key", "seven")


def test_over_grpc_it_is_the_same(fake_server, gateway_to, tmp_path):
    model, stand_in = fake_server("embedder")
    log = tmp_path / "log"
    gateway = gateway_to(stand_in.target, grpc_address="127.0.0.1:0", access_log=str(log))
    request, answer = protos.KSERVE_METHODS["ModelInfer"]
    asked = request(model_name="default", inputs=[dict(name="text", datatype="BYTES", shape=[1])])
    asked.inputs[0].contents.bytes_contents.append(b"a")
    with grpc.insecure_channel(f"127.0.0.1:{gateway.server.gateway.grpc_port}") as channel:
        stub = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer", request.SerializeToString, answer.FromString
        )
        _, call = stub.with_call(asked, metadata=(("x-request-id", "seven"),))
    assert dict(call.trailing_metadata())["x-request-id"] == "seven" == ids_of(model)[-1]
    assert [(line["request_id"], line["call"], line["status"]) for line in lines(log)] == [
        ("seven", "gRPC ModelInfer", "OK")
    ]


def test_a_batch_has_the_ids_of_its_requests(fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target, limits=Limits(max_in_flight=1))
    model.open.clear()

    def ask(own: str) -> str:
        answer = httpx.post(gateway.url + "/embed", json={"inputs": own}, headers={"X-Request-Id": own}, timeout=30)
        return answer.headers["x-request-id"]

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask, "first")]
        wait_until(lambda: gateway.service.scheduler.in_flight)
        asked += [pool.submit(ask, own) for own in ("second", "third")]
        wait_until(lambda: gateway.service.scheduler.queued_rows == 2)
        model.open.set()
        assert [one.result() for one in asked] == ["first", "second", "third"]
    assert sorted(ids_of(model)[-1].split(",")) == ["second", "third"]


def test_the_client_sends_an_id_and_an_error_names_it(fake_server):
    model, stand_in = fake_server("embedder")
    with Client(stand_in.target, "default") as client:
        client.embed(["a"])
        assert MADE.fullmatch(ids_of(model)[-1])
        with request_id("order-7"):
            client.embed(["a"])
        assert ids_of(model)[-1] == "order-7"
    with (
        Client("127.0.0.1:1", "default", timeout_s=1) as client,
        request_id("order-8"),
        pytest.raises(ServingError) as caught,
    ):
        client.embed(["a"])
    assert caught.value.request_id == "order-8"


def test_metrics_tell_the_share_of_texts_that_were_cut(fake_server, gateway_to):
    _, stand_in = fake_server("telling embedder")
    gateway = gateway_to(stand_in.target)
    gateway.http.post("/embed", json={"inputs": ["short", "x " * 1000, "short"]})
    found = dict(
        re.findall(r"^gateway_(\w+)_inputs_total\{.*\} (\S+)$", gateway.http.get("/metrics").text, re.MULTILINE)
    )
    assert found == {"text": "3.0", "truncated": "1.0"}


def test_answers_tell_browsers_what_they_may_do(shared_gateway):
    http = shared_gateway("embedder").http
    for path in ("/", "/docs", "/metrics", "/info"):
        headers = http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        if headers["content-type"].startswith("text/html"):
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]

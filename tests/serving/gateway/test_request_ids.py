"""The id of a request through client, gateway and server; the log of requests; headers for browsers."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from serving.client import Client, ServingError, request_id
from serving.gateway.keys import Keys
from tests.serving.gateway.conftest import wait_until

MADE = re.compile("[0-9a-f]{32}")


def ids_of(model):
    return [one["x-request-id"] for one in model.metadata]


@pytest.fixture
def logged(fake_server, gateway_to, tmp_path):
    """logged(**options): a gateway, its model, and a function that reads the gateway's log."""

    def make(**options):
        model, stand_in = fake_server("embedder")
        gateway = gateway_to(stand_in.target, access_log=str(tmp_path / "log"), check_s=60.0, **options)
        model.metadata.clear()
        return gateway, model, lambda: [json.loads(line) for line in (tmp_path / "log").read_text("utf-8").splitlines()]

    return make


PLAIN = "order-7", "a" * 1024


def test_a_plain_id_goes_through_and_comes_back_and_any_other_is_replaced(logged):
    gateway, model, log = logged()
    for given in (*PLAIN, None, "", "two words", "a" * 1025, "ä", "a;b"):
        model.metadata.clear()
        headers = {} if given is None else {"X-Request-Id": given.encode()}
        own = gateway.http.post("/embed", json={"inputs": "a"}, headers=headers).headers["x-request-id"]
        assert own == given if given in PLAIN else MADE.fullmatch(own)
        assert set(ids_of(model)) == {own}
        line = log()[-1]
        assert (line["request_id"], line["call"], line["status"], line["error"]) == (own, "POST /embed", 200, None)
        assert 0 < line["model_milliseconds"] < line["milliseconds"]


@pytest.mark.parametrize("log_bodies", [False, True])
def test_texts_are_logged_only_where_that_is_asked(logged, log_bodies):
    gateway, _, log = logged(log_bodies=log_bodies)
    for body in (b'{"inputs": "a secret"}', b'{"inputs": "a secret", "no field": 1}', b"a secret"):
        gateway.http.post("/embed", content=body)
    gateway.http.get("/health")
    assert [line["status"] for line in log()] == [200, 400, 400]
    assert ("secret" in str(log())) == log_bodies


def test_an_error_is_logged_with_its_code_and_has_an_id(logged):
    gateway, _, log = logged(keys=Keys(["alpha"]))
    answer = gateway.http.get("/metrics", headers={"X-Request-Id": "seven"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (401, "seven")
    (line,) = log()
    assert (line["status"], line["error"], line["request_id"]) == (401, "invalid_api_key", "seven")


def test_a_batch_has_the_ids_of_its_requests(fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target, max_in_flight=1)
    model.open.clear()

    def ask(own):
        answer = httpx.post(gateway.url + "/embed", json={"inputs": own}, headers={"X-Request-Id": own}, timeout=30)
        return answer.headers["x-request-id"]

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask, "first")]
        wait_until(lambda: gateway.service.scheduler.in_flight)
        asked += [pool.submit(ask, own) for own in ("second", "third")]
        wait_until(lambda: gateway.service.scheduler.queued_rows == 2)
        model.open.set()
        assert [one.result() for one in asked] == ["first", "second", "third"]
    # A look of the gateway at its models may come behind it.
    assert ["second", "third"] in [sorted(ids.split(",")) for ids in ids_of(model)]


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


def test_answers_tell_browsers_what_they_may_do(shared_gateway):
    http = shared_gateway("embedder").http
    for path in ("/", "/metrics", "/info"):
        headers = http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        if headers["content-type"].startswith("text/html"):
            assert "frame-ancestors 'none'" in headers["content-security-policy"]

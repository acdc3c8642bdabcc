"""What all routes have in common, and one table of requests with their answers, requests.txt: new routes join both."""

import json
import re

import pytest

from serving.gateway.keys import Keys
from serving.gateway.pages import PAGES
from serving.gateway.routes.table import ROUTES
from tests.refusals import table_of
from tests.serving.gateway.conftest import LONGEST, failure_of, kind_of, timing_of

REQUESTS = [line.split(" | ", 4) for line in table_of(__file__)]
PATHS = {f"POST {route.path}" for route in ROUTES} | {f"GET {page.path}" for page in PAGES}
LONG = "word " * 40


def read(text):
    return json.loads(text, parse_float=lambda digits: round(float(digits), 3))


def post(gateway, path, **body):
    return gateway.http.post(path, json=body)


@pytest.mark.parametrize("kind, called, body, status, answer", REQUESTS)
def test_a_request_has_its_answer(shared_gateway, kind, called, body, status, answer):
    method, path = called.split()
    found = shared_gateway(kind).http.request(method, path, content=b"" if body == "-" else body.encode())
    assert found.status_code == int(status), found.text
    if status != "200":
        assert answer in failure_of(found, path)
        return
    given = read(found.text) if answer[0] in "[{" else None
    if given is None:
        assert answer in found.text
    else:
        assert given == (given | read(answer) if isinstance(given, dict) else read(answer))
    if method == "POST":
        queue, model, total = timing_of(found)
        assert queue >= 0 and 0 < model < total and queue + model <= total
        # Asked with options, or not to truncate, embedders tell too, and have no field for it.
        assert ("x-truncated-inputs" in found.headers) == ('"truncated"' in found.text) or "embedder" in kind


def test_every_route_is_in_the_table():
    asked = {called for _, called, _, status, _ in REQUESTS if status == "200"}
    asked = {re.sub("/v1/models/.+", "/v1/models/{name:path}", called) for called in asked}
    asked = {
        called.replace("/models/default", "/models/{name}").replace("versions/1", "versions/{version}")
        for called in asked
    }
    assert asked == PATHS


def test_keys_open_all_but_health(fake_server, gateway_to):
    gateway = gateway_to(fake_server("embedder")[1].target, keys=Keys(["alpha", "bêta"]))
    is_open = {f"GET {page.path}" for page in PAGES if page.is_open}
    paths = ("/health", "/health/ready", "/health/live")
    assert is_open == {f"GET {path}" for path in paths}
    for called in PATHS:
        method, path = called.split()
        for key in ("alpha", "bêta"):
            headers = {"Authorization": f"Bearer {key}".encode()}
            assert gateway.http.request(method, path, content=b"{", headers=headers).status_code != 401
        for wrong in ({}, {"Authorization": "alpha"}, {"Authorization": b"Bearer \xff"}):
            answer = gateway.http.request(method, path, content=b"{", headers=wrong)
            assert (answer.status_code == 401) == (called not in is_open), path
            if called not in is_open:
                # A browser asks its user for the key.
                scheme = 'Basic realm="gateway"' if called == "GET /" else "Bearer"
                assert answer.headers["www-authenticate"] == scheme and "alpha" not in answer.text
                assert "no key that is known here" in failure_of(answer, path)


def test_every_other_method_is_refused(shared_gateway):
    http = shared_gateway("embedder").http
    for called in PATHS:
        method, path = called.split()
        others = {"PUT"} if path == "/" else {"GET", "POST", "PUT"} - {method}
        for other in others:
            answer = http.request(other, path)
            methods = ["GET", "HEAD"] if method == "GET" or path == "/" else [method]
            methods += ["POST"] if path == "/" else []
            assert answer.status_code == 405 and answer.headers["allow"] == ", ".join(methods)
            assert failure_of(answer, path) == f"{path} takes {' and '.join(methods)}"


def test_the_openapi_document_has_every_route_and_its_examples_work(shared_gateway):
    document = shared_gateway("embedder").http.get("/openapi.json").json()
    kinds = {route.path: kind_of(route) for route in ROUTES}
    posts = {path: methods["post"] for path, methods in document["paths"].items() if "post" in methods}
    assert set(posts) == set(kinds)
    for path, operation in posts.items():
        content = operation["requestBody"]["content"]["application/json"]
        assert content["schema"]["$ref"].rpartition("/")[2] in document["components"]["schemas"]
        answer = post(shared_gateway(kinds[path]), path, **content["example"])
        example = operation["responses"]["200"]["content"]["application/json"]["example"]
        assert answer.status_code == 200 and shape(answer.json()) == shape(example), path
    for path in (path for path, methods in document["paths"].items() if "get" in methods):
        assert f"GET {path}" in PATHS


def shape(value):
    """The names and types of an answer; a list is as its first item."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    return [shape(one) for one in value[:1]] if isinstance(value, list) else type(value)


@pytest.mark.parametrize("path", ["/fill_mask", "/embed_sparse", "/answer"])
def test_answers_are_sorted_whatever_the_order_of_the_model(shared_gateway, monkeypatch, path):
    (route,) = (route for route in ROUTES if route.path == path)
    gateway, found = shared_gateway(kind_of(route)), []
    for reverses in (False, True):
        monkeypatch.setattr(gateway.model, "reverses", reverses)
        text = post(gateway, path, **route.example).text
        found.append(re.findall(r'"(?:score|value)":([\d.]+)', text.partition('"answers"')[2] or text))
    assert len(found[0]) == 2 and sorted(found[0], reverse=True) == found[0] == found[1]


def test_metrics_count_requests_tokens_and_what_was_truncated(shared_gateway):
    gateway, metrics = shared_gateway("telling embedder"), {}

    def counted():
        lines = (line.rpartition(" ") for line in gateway.http.get("/metrics").text.splitlines() if line[0] != "#")
        before = dict(metrics)
        metrics.update((name, float(value)) for name, _, value in lines)
        return {name: value - before.get(name, 0) for name, value in metrics.items() if value != before.get(name, 0)}

    counted()
    answer = post(gateway, "/embed", inputs=["[UNK]", LONG, LONG, "word " * (LONGEST - 2)])
    assert answer.headers["x-truncated-inputs"] == "2"
    assert gateway.http.post("/embed", content=b"{").status_code == 400
    found = counted()
    expected = {
        'gateway_requests_total{route="/embed",status="200"}': 1, 'gateway_truncated_tokens_total{model="default"}': 52,
        'gateway_requests_total{route="/embed",status="400"}': 1, 'gateway_truncated_inputs_total{model="default"}': 2,
        'gateway_text_tokens_total{model="default"}': 1 + 2 * 40 + 14, 'gateway_batch_rows_sum{model="default"}': 4,
        'gateway_request_seconds_count{route="/embed"}': 2, "gateway_queue_seconds_count": 1,
        'gateway_text_inputs_total{model="default"}': 4,
        'gateway_batch_seconds_count{model="default"}': 1, 'gateway_unknown_tokens_total{model="default"}': 1
    }  # fmt: skip
    assert found | expected == found and found['gateway_batch_tokens_sum{model="default"}'] > 16
    assert metrics["gateway_queue_rows"] == metrics["gateway_queue_tokens"] == metrics["gateway_batches_in_flight"] == 0

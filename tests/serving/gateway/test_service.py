"""Keys, limits, clients that leave, and a model server that goes and comes back."""

import hmac
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from scripts.server import free_port
from serving.gateway.keys import Keys
from serving.gateway.scheduler import Limits
from tests.serving.gateway.conftest import wait_until
from tfrecords.base.errors import UserError


def test_every_key_is_compared_in_constant_time(monkeypatch):
    compared, real = [], hmac.compare_digest
    monkeypatch.setattr(
        hmac, "compare_digest", lambda *pair: compared.append([len(one) for one in pair]) or real(*pair)
    )
    keys = Keys(["first", "a second key", "3"])
    for header, is_open in (("Bearer first", True), ("Bearer 3", True), ("Bearer nope", False), ("nonsense", False)):
        assert keys.open_to(header) is is_open
        # All of them, wherever the right one stands, and no lengths that differ.
        assert compared == [[32, 32]] * 3
        compared.clear()


def test_key_files(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# ours\n\n alpha \nbêta\n")
    keys = Keys.read(str(path))
    assert keys.open_to("Bearer alpha") and keys.open_to("bearer  bêta") and not keys.open_to("Basic alpha")
    assert not keys.open_to("alpha") and not keys.open_to("Bearer ") and not keys.open_to("Bearer # ours")
    path.write_text("# none\n")
    with pytest.raises(UserError, match="holds no key"):
        Keys.read(str(path))
    with pytest.raises(UserError, match="cannot read --api_key_file"):
        Keys.read(str(tmp_path / "no"))


def test_keys_open_all_but_health_and_description(fake_server, gateway_to):
    _, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target, keys=Keys(["alpha", "bêta"]))
    body = {"inputs": "x"}
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "alpha"},
        {"Authorization": b"Bearer \xff"},
    ):
        answer = gateway.http.post("/embed", json=body, headers=headers)
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        assert "alpha" not in answer.text
    for key in ("alpha", "bêta"):
        good = {"Authorization": f"Bearer {key}".encode()}
        assert gateway.http.post("/embed", json=body, headers=good).status_code == 200
    closed = {path: gateway.http.get(path).status_code for path in ("/metrics", "/info", "/v1/models")}
    assert set(closed.values()) == {401}
    assert {gateway.http.get(path).status_code for path in ("/health", "/docs", "/openapi.json")} == {200}


def test_limits(fake_server, gateway_to):
    _, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target, max_inputs=3, max_body_bytes=1000)
    many = gateway.http.post("/embed", json={"inputs": ["x"] * 4})
    assert many.status_code == 400 and "4 inputs are more than the 3" in many.json()["error"]
    for content in (b"x" * 1001, (b"x" * 400 for _ in range(3))):
        large = gateway.http.post("/embed", content=content)
        assert large.status_code == 413 and "1000 bytes" in large.json()["error"]
    assert gateway.http.post("/embed", json={"inputs": ["x"] * 3}).status_code == 200


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"\xff", "what this route takes"),
        (b"[]", "Expected `object`"),
        (b'{"inputs": 5}', "$.inputs"),
        (b'{"inputs": true}', "$.inputs"),
        (b'{"inputs": ["a", null]}', "$.inputs[1]"),
        (b'{"inputs": "a", "dimensions": 0}', "$.dimensions"),
        (b'{"inputs": "a", "dimensions": 1e400}', "what this route takes"),
        (b'{"inputs": "a", "truncation_direction": "left"}', "$.truncation_direction"),
        (b'{"inputs": "\\ud800"}', "error"),
        (b'{"inputs": "a", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
        (b'{"inputs": []}', "no text"),
    ],
)
def test_wrong_bodies_are_400(shared_gateway, content, words):
    answer = shared_gateway("embedder").http.post("/embed", content=content)
    assert answer.status_code == 400 and words in answer.text and "Traceback" not in answer.text


def test_a_full_queue_is_429(fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target, limits=Limits(max_in_flight=1, max_queued_tokens=20))
    model.open.clear()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(gateway.http.post, "/embed", json={"inputs": "a"})
        assert model.asked.acquire(timeout=20)
        second = pool.submit(gateway.http.post, "/embed", json={"inputs": "b" * 60})
        wait_until(lambda: gateway.service.scheduler.queued_rows == 1)
        refused = gateway.http.post("/embed", json={"inputs": "c" * 60})
        assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
        model.open.set()
        assert first.result().status_code == second.result().status_code == 200


def test_requests_that_come_while_the_model_runs_share_a_batch(fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target, limits=Limits(max_in_flight=1))
    model.open.clear()
    texts = [f"text {number}" for number in range(9)]
    with ThreadPoolExecutor(10) as pool:
        first = pool.submit(gateway.http.post, "/embed", json={"inputs": "first"})
        assert model.asked.acquire(timeout=20)
        others = [pool.submit(gateway.http.post, "/embed", json={"inputs": text}) for text in texts]
        wait_until(lambda: gateway.service.scheduler.queued_rows == 9)
        model.open.set()
        answers = [other.result().json()[0] for other in others]
        assert first.result().status_code == 200
    assert [len(batch) for batch in model.batches] == [1, 9]
    alone = [gateway.http.post("/embed", json={"inputs": text}).json()[0] for text in texts]
    assert answers == alone


def test_a_client_that_leaves_gives_up_its_place(fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target, limits=Limits(max_in_flight=1))
    model.open.clear()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(gateway.http.post, "/embed", json={"inputs": "first"})
        assert model.asked.acquire(timeout=20)
        body = json.dumps({"inputs": ["never", "asked"]}).encode()
        with socket.create_connection(("127.0.0.1", gateway.server.port)) as connection:
            head = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            connection.sendall(head + body)
            wait_until(lambda: gateway.service.scheduler.queued_rows == 2)
            # Reset, as a killed client's connection is.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        wait_until(lambda: gateway.service.scheduler.queued_rows == 0)
        model.open.set()
        assert first.result().status_code == 200
    assert model.batches == [[["first"]]]


def test_a_request_that_takes_too_long_is_504(fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target, timeout_s=0.2)
    model.open.clear()
    assert gateway.http.post("/embed", json={"inputs": "a"}).status_code == 504
    model.open.set()
    # Of a busy machine 0.2 s may be too short for an answer.
    wait_until(lambda: gateway.http.post("/embed", json={"inputs": "a"}).status_code == 200)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("RESOURCE_EXHAUSTED", 429), ("UNAVAILABLE", 503), ("NOT_FOUND", 503), ("DEADLINE_EXCEEDED", 504),
        ("INVALID_ARGUMENT", 400), ("INTERNAL", 502), ("UNKNOWN", 502),
    ],
)  # fmt: skip
def test_failures_of_the_server_become_statuses(fake_server, gateway_to, code, status):
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target)
    model.failure = grpc.StatusCode[code], 'Traceback:\n  File "x", line 1'
    answer = gateway.http.post("/v1/embeddings", json={"input": "a"})
    assert answer.status_code == status and stand_in.target not in answer.text and "\n" not in answer.text
    assert ("retry-after" in answer.headers) == (status in (429, 503))
    model.failure = None
    assert gateway.http.post("/v1/embeddings", json={"input": "a"}).status_code == 200


def test_a_text_that_the_model_refuses_fails_its_request_alone(fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target, limits=Limits(max_in_flight=1))
    model.refuses = b"bad"
    model.open.clear()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(gateway.http.post, "/embed", json={"inputs": "first"})
        assert model.asked.acquire(timeout=20)
        others = [pool.submit(gateway.http.post, "/embed", json={"inputs": t}) for t in ("good", "bad", "fine")]
        wait_until(lambda: gateway.service.scheduler.queued_rows == 3)
        model.open.set()
        assert [first.result().status_code, *(one.result().status_code for one in others)] == [200, 200, 400, 200]


def test_the_server_behind_dies_and_comes_back(fake_server, gateway_to):
    port = free_port()
    gateway = gateway_to(f"127.0.0.1:{port}", live=False)
    body = {"input": "a"}

    def is_down():
        answer = gateway.http.post("/v1/embeddings", json=body)
        assert answer.status_code in (200, 503), answer.text
        assert answer.status_code == 200 or int(answer.headers["retry-after"]) >= 1
        return answer.status_code == 503

    assert is_down() and gateway.http.get("/health").status_code == 503
    wait_until(lambda: "does not answer" in gateway.http.post("/v1/embeddings", json=body).text)
    for _ in range(2):
        _, stand_in = fake_server("embedder", port)
        wait_until(lambda: not is_down())
        wait_until(lambda: gateway.http.get("/health").status_code == 200)
        stand_in.__exit__()
        wait_until(is_down)
        wait_until(lambda: gateway.http.get("/health").status_code == 503)


def test_several_models_are_asked_by_name(fake_server, gateway_to):
    _, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target, models=("one", "two"))
    assert [model["id"] for model in gateway.http.get("/v1/models").json()["data"]] == ["one", "two"]
    answer = gateway.http.post("/v1/embeddings", json={"input": "a", "model": "two"})
    assert answer.json()["model"] == "two"


def test_each_model_answers_as_soon_as_it_is_known(fake_server, gateway_to):
    model, stand_in = fake_server("classifier")
    gates = [model.gates.setdefault(("slow", name), threading.Event()) for name in ("tokenize", "classify")]
    gateway = gateway_to(stand_in.target, live=False, models=("slow", "quick"))

    def status(path="/predict", **body):
        return gateway.http.post(path, json={"inputs": "a"} | body).status_code

    wait_until(lambda: status(model="quick") == 200)
    # A request that names no model is for the first: the second must not answer in its place.
    for body in ({"model": "slow"}, {}):
        early = gateway.http.post("/predict", json={"inputs": "a"} | body)
        assert early.status_code == 503 and early.headers["retry-after"] == "1"
        assert early.json()["error"].startswith("not ready yet") and early.json()["error_type"] == "not_ready"
    ready = gateway.http.get("/health/ready")
    assert ready.status_code == 503 and "slow: not ready yet" in ready.json()["error"] and "quick" not in ready.text
    assert gateway.http.get("/health/live").status_code == 200
    # Pieces need no names of classes; classes without them would be other answers.
    gates[0].set()
    wait_until(lambda: status("/tokenize", model="slow") == 200)
    assert status(model="slow") == 503 == gateway.http.get("/health").status_code
    gates[1].set()
    wait_until(lambda: gateway.http.get("/health/ready").status_code == 200)
    assert status() == status(model="slow") == gateway.http.get("/health").status_code == 200


def test_a_model_that_is_not_loaded_is_named(fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    model.failure = grpc.StatusCode.NOT_FOUND, "Servable not found for request"
    gateway = gateway_to(stand_in.target, live=False)
    wait_until(lambda: "has not loaded the model 'default'" in gateway.http.post("/embed", json={"inputs": "a"}).text)
    assert gateway.http.get("/health/live").status_code == 200 != gateway.http.get("/health/ready").status_code


def test_a_model_that_is_not_loaded_keeps_no_request_from_the_others(fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    model.absent.add("gone")
    gateway = gateway_to(stand_in.target, live=False, models=("there", "gone"))
    wait_until(lambda: gateway.http.get("/health/ready").status_code == 200)
    health = gateway.http.get("/health")
    assert health.status_code == 503 and "has not loaded the model 'gone'" in health.text and "there" not in health.text
    assert gateway.http.post("/embed", json={"inputs": "a", "model": "there"}).status_code == 200


def test_stopping_answers_what_runs(fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target)
    model.open.clear()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(gateway.http.post, "/embed", json={"inputs": "a"})
        assert model.asked.acquire(timeout=20)
        stopping = threading.Thread(target=gateway.server.stop)
        stopping.start()
        model.open.set()
        assert running.result().status_code == 200
        stopping.join(10)
        assert not stopping.is_alive()

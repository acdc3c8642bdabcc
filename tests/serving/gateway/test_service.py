"""Keys, limits, clients that leave, and a model server that goes and comes back."""

import base64
import contextlib
import gzip
import hmac
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import numpy as np
import pytest

from serving.gateway import keys
from serving.gateway.keys import Keys
from serving.wire import protos
from tests.servers import free_port
from tests.serving.gateway.conftest import failure_of, wait_until
from tfrecords.base.errors import UserError


def ask(gateway, inputs, **more):
    return gateway.http.post("/embed", json={"inputs": inputs} | more)


@pytest.fixture
def held(fake_server, gateway_to):
    """held(max_held_bytes): within it a `first` request is at the model, which answers from `let_go()` on.

    `send(*inputs)` has further requests wait in the queue of the `gateway`.
    """

    @contextlib.contextmanager
    def make(max_held_bytes=2**20):
        model, stand_in = fake_server("embedder")
        gateway = gateway_to(stand_in.target, max_in_flight=1, max_held_bytes=max_held_bytes)
        model.open.clear()

        def wait_for(rows):
            wait_until(lambda: gateway.service.scheduler.queued_rows == rows)

        def send(*inputs):
            sent = [pool.submit(ask, gateway, one) for one in inputs]
            wait_for(len(inputs))
            return sent

        with ThreadPoolExecutor(16) as pool, contextlib.ExitStack() as stack:
            stack.callback(model.open.set)
            first = pool.submit(ask, gateway, "first")
            assert model.asked.acquire(timeout=20)
            yield SimpleNamespace(
                model=model, gateway=gateway, first=first, send=send, wait_for=wait_for, let_go=model.open.set
            )

    return make


def test_every_key_is_compared_in_constant_time(monkeypatch):
    compared, real = [], hmac.compare_digest
    monkeypatch.setattr(
        hmac, "compare_digest", lambda *pair: compared.append([len(one) for one in pair]) or real(*pair)
    )
    known = Keys(["first", "a second key", "3"])
    for header, is_open in (("Bearer first", True), ("Bearer 3", True), ("Bearer nope", False), ("nonsense", False)):
        assert known.open_to(header) is is_open
        # All of them, wherever the right one stands, and no lengths that differ.
        assert compared == [[32, 32]] * 3
        compared.clear()


def test_key_files(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# ours\n\n alpha \nbêta\n")
    known = Keys.read(str(path))
    assert known.open_to("Bearer alpha") and known.open_to("bearer  bêta") and not known.open_to("Basic alpha")
    # The password of a browser.
    for basic, is_open in (
        ("any:alpha", True),
        (":bêta", True),
        ("alpha:", False),
        ("alpha", False),
        ("any:no", False),
    ):
        assert known.open_to(f"Basic {base64.b64encode(basic.encode()).decode()}") is is_open
    assert not known.open_to("alpha") and not known.open_to("Bearer ") and not known.open_to("Bearer # ours")
    path.write_bytes("\ufeffalpha\nb".encode())
    assert Keys.read(str(path)).open_to("Bearer alpha")
    path.write_text("# none\n")
    with pytest.raises(UserError, match="holds no key"):
        Keys.read(str(path))
    with pytest.raises(UserError, match="cannot read --api_key_file"):
        Keys.read(str(tmp_path / "no"))


def test_a_key_file_that_is_replaced_counts_within_seconds(tmp_path, monkeypatch, caplog):
    """As a secret that Kubernetes mounts: a link to a folder goes over to another folder."""
    clock = 0.0
    monkeypatch.setattr(keys.time, "monotonic", lambda: clock)
    for name in ("first", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keys").write_text(name)
    (tmp_path / "data").symlink_to("first")
    known = Keys.read(str(tmp_path / "data" / "keys"))

    def opens():
        return [name for name in ("first", "other") if known.open_to(f"Bearer {name}")]

    assert opens() == ["first"]
    (tmp_path / "next").symlink_to("other")
    (tmp_path / "next").rename(tmp_path / "data")
    clock = 3.0
    assert opens() == ["other"]
    # Whoever empties or removes the file revokes all keys.
    (tmp_path / "other" / "keys").write_text("")
    clock = 6.0
    assert opens() == [] and caplog.text.count("no key is accepted") == 1
    (tmp_path / "other" / "keys").write_text("first")
    clock = 9.0
    assert opens() == ["first"]


def test_limits(fake_server, gateway_to):
    gateway = gateway_to(fake_server("embedder")[1].target, max_inputs=3, max_body_bytes=1000)
    many = ask(gateway, ["x"] * 4)
    assert many.status_code == 400 and "4 inputs are more than the 3" in many.json()["error"]
    for content in (b"x" * 1001, (b"x" * 400 for _ in range(3))):
        large = gateway.http.post("/embed", content=content)
        assert large.status_code == 413 and "1000 bytes" in large.json()["error"]
    fits = json.dumps({"inputs": ["x"] * 3}).encode().ljust(1000)
    assert gateway.http.post("/embed", content=fits).status_code == 200


def test_bodies_that_wait_fill_the_memory_they_may_take(held):
    with held(max_held_bytes=2000) as one:
        (second,) = one.send("b" * 1500)
        large, packed = json.dumps({"inputs": "c" * 600}).encode(), {"content-encoding": "gzip"}
        for content, headers in ((large, {}), (iter([large]), {}), (gzip.compress(large), packed)):
            refused = one.gateway.http.post("/embed", content=content, headers=headers)
            assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
            assert "memory" in refused.json()["error"]
        one.let_go()
        assert one.first.result().status_code == second.result().status_code == 200
        wait_until(lambda: one.gateway.server.gateway.room.held == 0)
        # Alone any size goes that one body may have.
        assert ask(one.gateway, "d" * 5000).status_code == 200


@pytest.mark.parametrize("linger", [b"", b"\1\0\0\0\0\0\0\0"], ids=["closed", "reset"])
def test_a_client_that_leaves_gives_up_its_place(held, linger):
    body = json.dumps({"inputs": ["never", "asked"]}).encode()
    with held() as one:
        with socket.create_connection(("127.0.0.1", one.gateway.server.port)) as connection:
            connection.sendall(b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            one.wait_for(2)
            # Closed, as a client's is whose time is up, or reset, as a killed one's.
            if linger:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        one.wait_for(0)
        one.let_go()
        assert one.first.result().status_code == 200
        assert one.model.batches == [[["first"]]]


def test_a_request_that_takes_too_long_is_504(fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    gateway = gateway_to(stand_in.target, timeout_s=0.2)
    model.open.clear()
    assert ask(gateway, "a").status_code == 504
    model.open.set()
    # Of a busy machine 0.2 s may be too short for an answer.
    wait_until(lambda: ask(gateway, "a").status_code == 200)


NODE = 'Traceback:\n  File "x", line 1 [[{{node a/Assert}}]]'
TOO_LONG = "send fewer or shorter texts"
FAILURES = [
    ("RESOURCE_EXHAUSTED", NODE, 429, "too much to do"), ("UNAVAILABLE", NODE, 503, "does not answer"),
    ("NOT_FOUND", NODE, 503, "does not answer"), ("CANCELLED", NODE, 503, "does not answer"),
    ("DEADLINE_EXCEEDED", NODE, 504, "time limit"), ("INVALID_ARGUMENT", NODE, 400, "Traceback"),
    ("OUT_OF_RANGE", NODE, 400, "Traceback"), ("INTERNAL", NODE, 502, "failed"), ("UNKNOWN", NODE, 502, "failed"),
    ("RESOURCE_EXHAUSTED", "Received message larger than max (5 vs. 4)", 413, TOO_LONG),
    ("RESOURCE_EXHAUSTED", "CLIENT: Sent message larger than max (5 vs. 4)", 413, TOO_LONG),
    ("UNAVAILABLE", "The batch scheduling queue to which this task was submitted is full", 429, "too much to do")
]  # fmt: skip


def test_failures_of_the_server_become_statuses(fake_server, gateway_to):
    model, stand_in = fake_server("embedder")
    gateway, usual = gateway_to(stand_in.target), model.before
    for code, details, status, words in FAILURES:
        model.before = lambda asked, context: context.abort(grpc.StatusCode[code], details)  # noqa: B023
        answer = gateway.http.post("/v1/embeddings", json={"input": "a"})
        assert answer.status_code == status and stand_in.target not in answer.text and "\n" not in answer.text
        assert words in failure_of(answer, "/v1/embeddings")
        assert ("Traceback" in answer.text) == (status == 400), "what the server says of the request alone"
        assert "node" not in answer.text
        assert ("retry-after" in answer.headers) == (status in (429, 503))
        model.before = usual
        wait_until(lambda: ask(gateway, "a").status_code == 200)


def test_an_answer_counts_until_its_client_has_read_it(fake_server, gateway_to, monkeypatch):
    model, stand_in = fake_server("embedder of tokens")
    gateway = gateway_to(stand_in.target, max_held_bytes=20 * 2**20)
    vectors = {"sequence_output": np.ones((1, 5, 400_000), np.float32), "lengths": np.int32([5])}
    monkeypatch.setattr(model, "outputs", lambda *_: vectors)
    body, size = b'{"inputs": "a"}', 5 * 400_000 * len("1.0,")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**14)
        connection.connect(("127.0.0.1", gateway.server.port))
        connection.sendall(b"POST /embed_all HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        connection.recv(10)
        room = gateway.server.gateway.room
        assert size < room.held < size + 1000
        refused = gateway.http.post("/embed_all", content=body)
        assert refused.status_code == 429 and "answers of other requests" in refused.json()["error"]
    wait_until(lambda: room.held == 0)


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda outputs: outputs["embedding"].tensor_shape.dim.add(size=-1), "output 'embedding' cannot be read"),
        (lambda outputs: outputs.clear(), "gave no output"),
    ],
    ids=["shape", "missing"],
)
def test_an_answer_of_the_server_that_cannot_be_used_is_502(fake_server, gateway_to, monkeypatch, damage, words):
    model, stand_in = fake_server("embedder")
    gateway, usual = gateway_to(stand_in.target), type(model).__call__

    def answer(self, request, context):
        found = protos.PredictResponse.FromString(usual(self, request, context))
        damage(found.outputs)
        return found.SerializeToString()

    monkeypatch.setattr(type(model), "__call__", answer)
    got = ask(gateway, "a")
    assert got.status_code == 502 and "the model server's answer cannot be used: " in got.text
    assert words in got.text and stand_in.target not in got.text


def test_the_server_behind_dies_and_comes_back(fake_server, gateway_to):
    port = free_port()
    gateway = gateway_to(f"127.0.0.1:{port}", live=False)

    def is_down():
        answer = ask(gateway, "a")
        assert answer.status_code in (200, 503), answer.text
        assert answer.status_code == 200 or int(answer.headers["retry-after"]) >= 1
        return answer.status_code == 503

    assert is_down() and gateway.http.get("/health").status_code == 503
    wait_until(lambda: "does not answer" in ask(gateway, "a").text)
    for _ in range(2):
        _, stand_in = fake_server("embedder", port)
        wait_until(lambda: not is_down())
        wait_until(lambda: gateway.http.get("/health").status_code == 200)
        stand_in.__exit__()
        wait_until(is_down)
        wait_until(lambda: gateway.http.get("/health").status_code == 503)


def test_each_model_answers_as_soon_as_it_is_known(fake_server, gateway_to):
    model, stand_in = fake_server("classifier")
    gate = threading.Event()

    def wait(asked, context):
        assert asked.model_spec.name != "slow" or gate.wait(30)

    model.before = wait
    gateway = gateway_to(stand_in.target, live=False, models=("slow", "quick"))

    def status(**body):
        return gateway.http.post("/predict", json={"inputs": "a"} | body).status_code

    wait_until(lambda: status(model="quick") == 200)
    # A request that names no model is for the first: the second must not answer in its place.
    for body in ({"model": "slow"}, {}):
        early = gateway.http.post("/predict", json={"inputs": "a"} | body)
        assert early.status_code == 503 and early.headers["retry-after"] == "1"
        assert early.json()["error"].startswith("not ready yet") and early.json()["error_type"] == "not_ready"
    ready = gateway.http.get("/health/ready")
    assert ready.status_code == 503 and "slow: not ready yet" in ready.json()["error"] and "quick" not in ready.text
    assert gateway.http.get("/health/live").status_code == 200
    assert gateway.http.get("/health").status_code == 503
    gate.set()
    wait_until(lambda: gateway.http.get("/health/ready").status_code == 200)
    assert status() == status(model="slow") == gateway.http.get("/health").status_code == 200


def test_a_model_that_is_not_loaded_is_named_and_keeps_no_request_from_the_others(fake_server, front_of, gateway_to):
    front, absent = front_of(fake_server("embedder")[1].target), {"gone", "there"}

    def refuse(method, request, context):
        kind = protos.PredictRequest if method == "Predict" else protos.GetModelMetadataRequest
        if kind.FromString(request).model_spec.name in absent:
            context.abort(grpc.StatusCode.NOT_FOUND, "Servable not found for request")

    front.rule = refuse
    gateway = gateway_to(front.target, live=False, models=("there", "gone"))

    def get(path):
        return gateway.http.get(path)

    wait_until(lambda: "has not loaded the model 'there'" in ask(gateway, "a").text)
    assert get("/health/live").status_code == 200 != get("/health/ready").status_code
    absent.remove("there")
    wait_until(lambda: get("/health/ready").status_code == 200)
    health = get("/health")
    assert health.status_code == 503 and "has not loaded the model 'gone'" in health.text and "there" not in health.text
    assert ask(gateway, "a", model="there").status_code == 200
    answer = ask(gateway, "a", model="gone")
    assert answer.status_code == 404 and "retry-after" not in answer.headers
    assert failure_of(answer, "/embed") == "the model server has not loaded the model 'gone'"
    # The model that is there cannot, and the other is not.
    answer = gateway.http.post("/rerank", json={"query": "a", "texts": ["b"]})
    assert answer.status_code == 400 and failure_of(answer, "/rerank") == "no model here can rerank"


def test_a_server_that_is_busy_while_a_model_is_read_is_asked_again(fake_server, gateway_to):
    model, server = fake_server("classifier")
    codes = ["CANCELLED", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "DEADLINE_EXCEEDED"]

    def busy(asked, context):
        if asked.model_spec.signature_name == "serving_default" and codes:
            context.abort(grpc.StatusCode[codes.pop()], "not now")

    model.before = busy
    gateway = gateway_to(server.target)
    (read,) = gateway.http.get("/info").json()["models"]
    assert (read["labels"], codes) == (["dull", "fine"], [])


def test_stopping_answers_what_runs(held):
    with held() as one:
        stopping = threading.Thread(target=one.gateway.server.stop)
        stopping.start()
        stopping.join(0.5)
        assert stopping.is_alive()
        one.let_go()
        assert one.first.result().status_code == 200
        stopping.join(10)
        assert not stopping.is_alive()

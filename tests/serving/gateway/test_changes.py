"""The model behind the gateway changes, or its server is busy, while requests come."""

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from tests.serving.gateway.conftest import failure_of, wait_until

TEXTS = [f"text {number}" for number in range(8)]


def predicted(gateway):
    """The names and scores of each text's classes."""
    answer = gateway.http.post("/predict", json={"inputs": TEXTS})
    assert answer.status_code == 200, answer.text
    return tuple(tuple(sorted((one["label"], round(one["score"], 4)) for one in row)) for row in answer.json())


@pytest.fixture
def two(fake_server):
    """The targets of two classifiers that share a name of a class, but no score."""
    (_, one), (model, other) = fake_server("classifier"), fake_server("classifier")
    model.labels, model.sign = [b"dull", b"blue"], -1
    return one.target, other.target


@pytest.mark.parametrize("number", [1, 2])
def test_no_answer_is_of_two_models(two, front_of, gateway_to, number):
    """Under another number, or under the same one."""
    one, other = two
    front = front_of(one)
    gateway, found, stop = gateway_to(front.target), [], threading.Event()

    def go_on():
        while not stop.is_set():
            found.append(predicted(gateway))

    first = predicted(gateway)
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(go_on) for _ in range(4)]
        wait_until(lambda: len(found) > 8)
        front.point_at(other, number)
        size = len(found)
        wait_until(lambda: len(found) > size + 40)
        stop.set()
        for one in running:
            one.result()
    last = predicted(gateway)
    assert first != last and set(found) == {first, last}
    assert {name for row in last for name, _ in row} == {"dull", "blue"}


def test_another_model_under_the_same_number_is_soon_known(two, fake_server, front_of, gateway_to):
    one, other = two
    front = front_of(one)
    gateway = gateway_to(front.target)

    def told():
        (model,) = gateway.http.get("/info").json()["models"]
        return model["can"][0], model["labels"]

    assert told() == ("classify", ["dull", "fine"])
    front.point_at(other)
    wait_until(lambda: told() == ("classify", ["dull", "blue"]))
    front.point_at(fake_server("embedder")[1].target)
    wait_until(lambda: gateway.http.post("/embed", json={"inputs": "a"}).status_code == 200)
    assert told() == ("embed", [])
    refused = gateway.http.post("/predict", json={"inputs": "a"})
    assert refused.status_code == 400 and failure_of(refused, "/predict") == "no model here can classify"


def test_servers_of_unlike_versions_behind_one_name_answer_every_request(two, front_of, gateway_to):
    one, other = map(front_of, two, (1, 2))
    gateway = gateway_to(f"ipv4:{one.target},{other.target}")
    assert len({predicted(gateway) for _ in range(40)}) <= 2


@pytest.mark.parametrize(
    "code, message",
    [
        ("RESOURCE_EXHAUSTED", "Server Threadpool Exhausted"), ("DEADLINE_EXCEEDED", "too late"),
        ("UNAVAILABLE", "The batch scheduling queue to which this task was submitted is full")
    ]
)  # fmt: skip
def test_a_busy_server_is_not_absent(fake_server, front_of, gateway_to, code, message):
    front = front_of(fake_server("classifier")[1].target)
    gateway = gateway_to(front.target, check_s=0.05)

    def refuse(method, request, context):
        if method == "GetModelMetadata":
            context.abort(grpc.StatusCode[code], message)

    front.rule = refuse
    looks = front.calls.count("GetModelMetadata")
    wait_until(lambda: front.calls.count("GetModelMetadata") > looks + 3)
    wait_until(lambda: gateway.service.models["default"].error)
    for path in ("/health", "/health/ready"):
        assert gateway.http.get(path).status_code == 200
    assert 'gateway_model_live{model="default"} 1.0' in gateway.http.get("/metrics").text
    assert len(predicted(gateway)) == len(TEXTS)


@pytest.mark.parametrize("number", [1, 2])
def test_a_request_of_several_batches_is_answered_by_one_model(two, front_of, gateway_to, number):
    """Scores and names of classes, although another came between two batches, under the same number or another."""
    one, other = two
    front = front_of(one)
    gateway = gateway_to(front.target, max_batch_rows=1, max_in_flight=1, check_s=60.0)
    calls = front.calls.count("Predict")
    front.rule = lambda *_: front.calls.count("Predict") == calls + 4 and front.point_at(other, number)
    answer = predicted(gateway)
    assert answer == predicted(gateway) and {name for row in answer for name, _ in row} == {"dull", "blue"}


def test_a_request_that_another_model_refuses_begins_anew(fake_server, front_of, gateway_to):
    front, other = front_of(fake_server("classifier")[1].target), fake_server("telling classifier")[1].target
    gateway = gateway_to(front.target, check_s=60.0)

    def refuse(method, request, context):
        if method == "Predict":
            front.rule = lambda *_: None
            front.point_at(other)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "other signatures")

    front.rule = refuse
    assert len(predicted(gateway)) == len(TEXTS)

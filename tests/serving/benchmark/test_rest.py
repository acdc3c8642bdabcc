"""Requests over HTTP on a kept-alive connection: what is sent, how failures read, what answers hold."""

import json
import time

import grpc
import numpy as np
import pytest

from serving.benchmark import rest
from serving.benchmark.load import Driver, LoadShare
from serving.client import Connection

OK = (200, b'{"outputs": [[0.25, 0.75]]}')


def url_of(server):
    return rest.predict_url(f"127.0.0.1:{server.server_port - 1}", server.server_port, "m")


def test_requests_are_columns_of_json():
    inputs = {"input_ids": np.array([[2, 7, 3]], np.int32), "text": np.array(["café".encode()], object)}
    assert json.loads(rest.request_body(inputs, "s")) == {
        "signature_name": "s",
        "inputs": {"input_ids": [[2, 7, 3]], "text": ["café"]},
    }


def test_urls_name_the_version_or_the_label():
    assert rest.predict_url("h:8500", 8501, "m") == "http://h:8501/v1/models/m:predict"
    assert rest.predict_url("h:8500", 8501, "a b", version=3) == "http://h:8501/v1/models/a%20b/versions/3:predict"
    assert rest.predict_url("unix:/s", 8501, "m", label="l") == "http://127.0.0.1:8501/v1/models/m/labels/l:predict"


def test_answers_are_arrays():
    assert rest.read_answer(OK[1])["outputs"].tolist() == [[0.25, 0.75]]
    several = rest.read_answer(b'{"outputs": {"label": ["good"], "score": [0.5]}}')
    assert several["label"].dtype == object and several["score"].dtype == np.float64
    with pytest.raises(ValueError):
        rest.read_answer(b'{"error": "no"}')


def test_one_connection_serves_all_requests_of_a_client(web):
    server = web(OK)
    driver = Driver(Connection("127.0.0.1:1", attempts=1))
    share = LoadShare(
        [b"{}", b"[]"], [OK[1]] * 2, 30.0, time.perf_counter(), 0.1, clients=2, item_step=2, url=url_of(server),
        least_requests=20, longest_seconds=60.0,
    )  # fmt: skip
    samples = driver.run(share)
    driver.close()
    assert server.connections == 2 and len(server.bodies) == len(samples.code) > 10
    assert (samples.code == 0).all() and not samples.differing
    assert set(server.paths) == {"/v1/models/m:predict"} and set(server.bodies) == {b"{}", b"[]"}


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        ((400, b'{"error": "bad shape"}'), "INVALID_ARGUMENT", "bad shape"),
        ((404, b""), "NOT_FOUND", "HTTP 404"),
        ((503, b'{"error": "full"}'), "UNAVAILABLE", "full"),
        ((418, b"tea"), "UNKNOWN", "tea"),
        ((None, 0.0), "UNAVAILABLE", ""),
        ((None, 1.0), "DEADLINE_EXCEEDED", "0.2 s"),
    ],
    ids=["400", "404", "503", "418", "cut", "silent"],
)
@pytest.mark.few(2)
def test_failures_are_grpcs_and_the_next_request_is_well(web, reply, code, words):
    stub = rest.RestStub(url_of(web(reply, OK)))
    with pytest.raises(grpc.RpcError) as caught:
        stub(b"{}", timeout=0.2)
    assert caught.value.code() is grpc.StatusCode[code] and words in caught.value.details()
    assert stub(b"{}", timeout=5.0) == OK[1]
    stub.close()


def test_an_absent_server_is_unavailable():
    stub = rest.RestStub("http://127.0.0.1:1/v1/models/m:predict")
    stub.connect()
    with pytest.raises(grpc.RpcError) as caught:
        stub(b"{}", timeout=1.0)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE and "refused" in caught.value.details()

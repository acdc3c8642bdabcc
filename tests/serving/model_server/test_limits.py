"""What flags change about requests: limits of size, time and number, and forms of the answer."""

import socket
import time

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tensorflow_serving.apis import prediction_service_pb2_grpc

from serving.model_server import json_request
from serving.model_server.json_request import parse_object
from serving.model_server.rest import RestApi
from serving.model_server.status import StatusError
from serving.model_server.telemetry import RequestLog
from tests.serving.model_server.conftest import predict_request, status_of, wait_until

PREDICT = "/v1/models/default:predict"
BODY = b'{"inputs": 2.0}'
NOBODY = "NOT_FOUND: Servable not found for request: Latest(nobody)"


def ask_for_nobody(running):
    return status_of(running.predictions.Predict, predict_request("nobody"), timeout=60)


def test_one_request_too_many_is_refused(start_server, held):
    running = start_server(model_base_path=held, grpc_max_threads=3)
    busy = [running.predictions.Predict.future(predict_request(signature="stuck", x=1.0), 60) for _ in range(2)]
    wait_until(lambda: ask_for_nobody(running) != NOBODY)
    assert ask_for_nobody(running) == "RESOURCE_EXHAUSTED: Server Threadpool Exhausted"
    for _ in busy:
        body = {"signature_name": "release", "inputs": 2.0}
        assert running.http("POST", PREDICT, body)[1] == {"outputs": 2.0}
    assert [list(call.result().outputs["y"].float_val) for call in busy] == [[3.0], [3.0]]
    wait_until(lambda: ask_for_nobody(running) == NOBODY)


def test_a_time_limit_ends_the_run_of_the_graph(start_server, held):
    """The only thread is free again because the server has stopped the run, which nothing else would end."""
    running = start_server(model_base_path=held, grpc_max_threads=1, rest_api_timeout_in_ms=200)
    try:
        for _ in range(2):
            status = status_of(running.predictions.Predict, predict_request(signature="stuck", x=1.0), timeout=0.2)
            assert status.startswith("DEADLINE_EXCEEDED")
            wait_until(lambda: ask_for_nobody(running) == NOBODY)
        assert running.http("POST", PREDICT, {"signature_name": "stuck", "inputs": 1.0})[0] == 504
    finally:
        for _ in range(3):
            running.http("POST", PREDICT, {"signature_name": "release", "inputs": 1.0})


def test_bodies_above_the_limit(start_server):
    running = start_server(rest_api_max_body_bytes=1000)
    assert running.http("POST", PREDICT, BODY + b" " * 985)[1] == {"outputs": 3.0}
    for large in (BODY + b" " * 986, iter([BODY] * 99)):
        status, answer, _ = running.http("POST", PREDICT, large)
        assert (status, "--rest_api_max_body_bytes" in answer["error"]) == (413, True)
    with socket.create_connection(("127.0.0.1", running.options.rest_api_port)) as connection:
        head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n".encode()
        connection.sendall(head + b" " * 1001 + b"\r\n0\r\n\r\n")
        assert b" 413 " in connection.recv(1000)
    assert running.http("POST", PREDICT, BODY)[1] == {"outputs": 3.0}


def test_parsing_counts_in_the_time_limit_unless_there_is_none(server, start_server):
    """A request that waited and was parsed until its time was up is not run any more."""
    api, late = RestApi(server.server.core, RequestLog("")), time.monotonic() - 31
    without = RestApi(start_server(rest_api_timeout_in_ms=0).server.core, RequestLog(""))
    for body in (BODY, b'{"inputs": ' + b" " * 2**21 + b"2.0}", b'{"inputs": NaN}' + b" " * 2**22):
        assert api.answer("POST", PREDICT, {}, body, late).status == 504
        for patient, begin in ((api, None), (without, late)):
            assert patient.answer("POST", PREDICT, {}, body, begin).status == 200
    # No parser can be stopped: the time is looked at after it.
    with pytest.raises(StatusError, match="the time limit of the request passed before its run"):
        parse_object(b'{"inputs": 1}', late)


def test_a_request_whose_time_passes_while_its_tensors_are_made_is_not_run(server, monkeypatch):
    def slow(*arguments):
        time.sleep(0.2)
        return predict_inputs(*arguments)

    predict_inputs = json_request.predict_inputs
    monkeypatch.setattr(json_request, "predict_inputs", slow)
    late = time.monotonic() - 29.9
    answer = RestApi(server.server.core, RequestLog("")).answer("POST", PREDICT, {}, BODY, late)
    assert (answer.status, b"passed before its run" in answer.body) == (504, True)


def test_cross_origin_requests_are_answered_where_the_flag_allows_them(start_server, server):
    running = start_server(rest_api_enable_cors_support=True)
    status, _, headers = running.http("OPTIONS", PREDICT, headers={"Origin": "http://example.com"})
    assert (status, headers["Access-Control-Allow-Origin"]) == (200, "*")
    assert running.http("POST", PREDICT, BODY)[2]["Access-Control-Allow-Origin"] == "*"
    assert server.http("POST", PREDICT, BODY)[2]["Access-Control-Allow-Origin"] is None


def test_tensor_content_on_request(start_server):
    running = start_server(enable_serialization_as_tensor_content=True)
    output = running.predictions.Predict(predict_request(x=[[2.0]])).outputs["y"]
    assert output.tensor_content == np.float32(3.0).tobytes()
    assert not output.float_val


def test_unix_socket(start_server, tmp_path):
    for _ in range(2):
        # The second takes the name over from the first, as upstream's own tests expect.
        start_server(port=0, grpc_socket_path=tmp_path / "s.sock")
    with grpc.insecure_channel(f"unix:{tmp_path}/s.sock") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        assert list(stub.Predict(predict_request(x=[2.0])).outputs["y"].float_val) == [3.0]


def test_channel_arguments(start_server):
    arguments = "grpc.max_connection_age_ms=2000,grpc.lb_policy_name=grpclb,grpc.max_receive_message_length=-1"
    running = start_server(grpc_channel_arguments=arguments + ",grpc.max_receive_message_length=1000")
    assert running.predict(2.0) == [3.0]
    status = status_of(running.predict, *([1.0] * 1000))
    assert status.startswith("RESOURCE_EXHAUSTED") and "larger than max" in status


def test_health_is_told_of_known_names_and_nothing_is_stored_for_others(start_server, server):
    running = start_server(enable_grpc_healthcheck_service=True)
    stub, serving = health_pb2_grpc.HealthStub(running.channel), health_pb2.HealthCheckResponse.SERVING

    def asked(name):
        return health_pb2.HealthCheckRequest(service=name)

    def watched(name):
        stream = stub.Watch(asked(name), timeout=60)
        status = next(iter(stream)).status
        stream.cancel()
        return status

    for name in ("", "ModelService", "PredictionService"):
        assert stub.Check(asked(name)).status == serving
    assert status_of(stub.Check, asked("other")).startswith("NOT_FOUND")
    for index in range(10):
        assert watched(f"invented {index}") == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    assert not any("invented" in name for name in running.server._grpc._health._send_response_callbacks)
    assert watched("") == serving
    plain = health_pb2_grpc.HealthStub(server.channel)
    assert status_of(plain.Check, asked("")).startswith("UNIMPLEMENTED")


def test_watches_that_end_while_others_begin_stop_nobody(start_server):
    running = start_server(enable_grpc_healthcheck_service=True)
    stub, request = health_pb2_grpc.HealthStub(running.channel), health_pb2.HealthCheckRequest(service="")
    for _ in range(50):
        streams = [stub.Watch(request, timeout=60) for _ in range(4)]
        for stream in streams:
            assert next(iter(stream)).status == health_pb2.HealthCheckResponse.SERVING
            stream.cancel()

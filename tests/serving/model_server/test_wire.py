"""What stands around the calls: TLS, metrics, access log, odd and hostile connections, channel arguments."""

import contextlib
import json
import shutil
import socket
import subprocess
import threading
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.core.framework import tensor_pb2, tensor_shape_pb2, types_pb2
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving import http_protocol
from serving.model_server import telemetry
from serving.model_server.status import StatusError
from serving.wire.tensors import fill_tensor


def predict_request(value=2.0):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "default"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([value]))
    return request


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A certificate authority, and a certificate for localhost and one for a client that it signed."""
    if shutil.which("openssl") is None:
        pytest.skip("makes its certificates with the openssl command")
    folder = tmp_path_factory.mktemp("certificates")

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test authority")
    (folder / "names").write_text("subjectAltName=DNS:localhost")
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                "-out", f"{name}.crt", "-extfile", "names")  # fmt: skip
    return {path.name: path.read_text() for path in folder.iterdir()}


def ssl_config(path, certificates, verify):
    quoted = {name: json.dumps(text) for name, text in certificates.items()}
    path.write_text(
        f"server_key: {quoted['server.key']}\nserver_cert: {quoted['server.crt']}\n"
        f"custom_ca: {quoted['ca.crt']}\nclient_verify: {str(verify).lower()}\n"
    )
    return str(path)


def secure_predict(port, certificates, with_client):
    pair = [certificates[f"client.{kind}"].encode() for kind in ("key", "crt")] if with_client else [None, None]
    credentials = grpc.ssl_channel_credentials(certificates["ca.crt"].encode(), *pair)
    with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        return list(stub.Predict(predict_request(), 10).outputs["y"].float_val)


def test_tls(start_server, half_plus_two, tmp_path, certificates, error_of):
    running = start_server(
        model_base_path=str(half_plus_two), ssl_config_file=ssl_config(tmp_path / "ssl", certificates, verify=False)
    )
    assert secure_predict(running.options.port, certificates, with_client=False) == [3.0]
    assert error_of(running.predict, 2.0, timeout=2)[0] in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    assert running.http("GET", "/v1/models/default")[0] == 200, "REST stays plain, as in the real server"


def test_mutual_tls(start_server, half_plus_two, tmp_path, certificates, error_of, caplog):
    running = start_server(
        model_base_path=str(half_plus_two), ssl_config_file=ssl_config(tmp_path / "ssl", certificates, verify=True)
    )
    assert secure_predict(running.options.port, certificates, with_client=True) == [3.0]
    assert error_of(secure_predict, running.options.port, certificates, with_client=False)[0] == "UNAVAILABLE"
    assert f"the REST port {running.options.rest_api_port} takes plain HTTP" in caplog.text


@pytest.mark.parametrize("text", ['server_key: "/a/file.key"', "server_key: {", 'no_such_field: "a"'])
def test_ssl_file_mistakes(start_server, half_plus_two, tmp_path, text):
    (tmp_path / "ssl").write_text(text)
    with pytest.raises(StatusError):
        start_server(model_base_path=str(half_plus_two), ssl_config_file=str(tmp_path / "ssl"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"server.key": "-----BEGIN PRIVATE KEY-----\nbm8=\n-----END PRIVATE KEY-----"}, "server_key and server_cert"),
        ({"server.crt": "client.crt"}, "server_key and server_cert"),
        ({"ca.crt": "-----BEGIN CERTIFICATE-----"}, "custom_ca"),
    ],
    ids=["no key", "another key's certificate", "no authority"],
)
def test_keys_that_cannot_be_used_are_not_a_port_in_use(build, half_plus_two, tmp_path, certificates, changes, message):
    changed = certificates | {name: certificates.get(value, value) for name, value in changes.items()}
    with pytest.raises(StatusError) as caught:
        build.start(model_base_path=str(half_plus_two), ssl_config_file=ssl_config(tmp_path / "ssl", changed, True))
    assert caught.value.code.name == "INVALID_ARGUMENT"
    assert caught.value.message.startswith(f"{message} in '{tmp_path}/ssl'")
    assert "BEGIN" not in caught.value.message


def test_metrics_page(start_server, half_plus_two, tmp_path, error_of):
    (tmp_path / "monitoring").write_text('prometheus_config { enable: true path: "/metrics/here" }')
    running = start_server(
        model_name="metered", model_base_path=str(half_plus_two), monitoring_config_file=str(tmp_path / "monitoring")
    )
    for _ in range(3):
        running.predict(2.0, model="metered")
    error_of(running.predict, 2.0, model="metered", version=9)
    running.http("POST", "/v1/models/metered:predict", {"inputs": 2.0})
    assert running.http("GET", "/v1/models/metered")[0] == running.http("GET", "/v1/models/metered/metadata")[0] == 200
    assert running.http("GET", "/v1/models/metered/versions/9")[0] == 404
    status, page, headers = running.http("GET", "/metrics/here")
    page = page.decode()
    assert (status, headers["Content-Type"]) == (200, "text/plain")
    assert "# TYPE :tensorflow:serving:request_count counter\n" in page
    assert ':tensorflow:serving:request_count{model_name="metered",status="OK"} 6\n' in page
    assert ':tensorflow:serving:request_count{model_name="metered",status="NOT_FOUND"} 2\n' in page
    labels = 'model_name="metered",API="Predict",entrypoint="GRPC"'
    assert f":tensorflow:serving:request_latency_count{{{labels}}} 3\n" in page
    assert f':tensorflow:serving:request_latency_bucket{{{labels},le="10"}} 0\n' in page
    assert f':tensorflow:serving:request_latency_bucket{{{labels},le="+Inf"}} 3\n' in page
    assert 'request_latency_count{model_name="metered",API="predict",entrypoint="REST"} 1\n' in page
    assert 'request_latency_count{model_name="metered",API="",entrypoint="REST"} 2\n' in page
    assert ':tensorflow:serving:runtime_latency_count{model_name="metered",API="Predict",runtime="TF1"} 4\n' in page
    assert running.http("GET", "/monitoring/prometheus/metrics")[0] == 404


def test_invented_model_names_make_no_series(server, error_of, counted):
    """1,000 names of 1 MB each were kept for good, and 10,000 hid the real model."""
    before = counted("request_count", model_name="", status="NOT_FOUND")
    for index in range(20):
        assert error_of(server.predict, 1.0, model=f"invented {index}")[0] == "NOT_FOUND"
        assert server.http("POST", f"/v1/models/invented{index}:predict", {"inputs": 1.0})[0] == 404
    assert "invented" not in telemetry.exposition()
    assert counted("request_count", model_name="", status="NOT_FOUND") - before == 40
    known = counted("request_count", model_name="default", status="OK")
    server.predict(1.0)
    assert counted("request_count", model_name="default", status="OK") - known == 1


def test_metrics_default_path_and_off(start_server, half_plus_two, tmp_path, server):
    (tmp_path / "monitoring").write_text("prometheus_config { enable: true }")
    running = start_server(model_base_path=str(half_plus_two), monitoring_config_file=str(tmp_path / "monitoring"))
    assert running.http("GET", "/monitoring/prometheus/metrics")[0] == 200
    assert server.http("GET", "/monitoring/prometheus/metrics")[0] == 404


def test_page_is_what_prometheus_reads():
    """Names with a leading colon and counters without _total, read by Prometheus' own parser."""
    from prometheus_client.parser import text_string_to_metric_families

    telemetry.REQUEST_COUNT.labels('odd "name"\\', "OK").inc(2)
    telemetry.REQUEST_EXAMPLE_COUNTS.labels("parsed").observe(3)
    families = {family.name: family for family in text_string_to_metric_families(telemetry.exposition())}
    samples = families[":tensorflow:serving:request_count"].samples
    assert any(s.labels == {"model_name": 'odd "name"\\', "status": "OK"} and s.value == 2 for s in samples)
    histogram = [s for s in families[":tensorflow:serving:request_example_counts"].samples
                 if s.labels.get("model") == "parsed"]  # fmt: skip
    by_limit = {s.labels["le"]: s.value for s in histogram if "le" in s.labels}
    assert (by_limit["2"], by_limit["4"], by_limit["+Inf"]) == (0, 1, 1)


def test_access_log_has_both_sides(start_server, half_plus_two, tmp_path, error_of):
    log = tmp_path / "access"
    running = start_server(model_base_path=str(half_plus_two), access_log=str(log))
    running.predict(2.0)
    error_of(running.predict, 2.0, version=9)
    running.http("POST", "/v1/models/default/versions/123:predict", {"inputs": "a"})
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(e["entrypoint"], e["status"], e["version"]) for e in entries] == [
        ("GRPC", "OK", None), ("GRPC", "NOT_FOUND", 9), ("REST", "INVALID_ARGUMENT", 123),
    ]  # fmt: skip
    assert all(entry["milliseconds"] > 0 for entry in entries)


def test_full_disk_does_not_fail_requests(start_server, half_plus_two):
    running = start_server(model_base_path=str(half_plus_two), access_log="/dev/full")
    for _ in range(3):
        assert running.predict(2.0) == [3.0]


def test_slow_and_silent_connections_do_not_stop_others(start_server, half_plus_two, monkeypatch):
    monkeypatch.setattr(http_protocol, "RECEIVE_SECONDS", 1.0)
    running = start_server(model_base_path=str(half_plus_two), rest_api_num_threads=2, grpc_max_threads=4)
    with contextlib.ExitStack() as stack:
        slow = []
        for index in range(100):
            port = running.options.rest_api_port if index % 2 else running.options.port
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            if index % 4 == 1:
                connection.sendall(b"POST /v1/models/default:predict HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            elif index % 4 == 3:
                connection.sendall(b"POST /v1/models/default:predict HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
            if index % 2:
                slow.append(connection)
        for _ in range(5):
            assert running.http("POST", "/v1/models/default:predict", {"inputs": 2.0})[1] == {"outputs": 3.0}
            assert running.predict(2.0) == [3.0]
        for connection in slow:
            connection.settimeout(10)
            # Cut off without an answer, or told that it took too long.
            assert connection.recv(100)[:12] in (b"", b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "bytes_",
    [
        b"\x00\xff\x00\xff\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nA" + b"a" * 10**6,
        b"POST /v1/models/default:predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_no_http_at_all(server, bytes_):
    with socket.create_connection(("127.0.0.1", server.options.rest_api_port)) as connection:
        connection.settimeout(10)
        with contextlib.suppress(ConnectionError):
            connection.sendall(bytes_)
            answer = connection.recv(1000)
            assert answer == b"" or b" 400 " in answer.splitlines()[0]
    assert server.http("GET", "/v1/models/default")[0] == 200


def test_chunked_body_and_keep_alive(server):
    with socket.create_connection(("127.0.0.1", server.options.rest_api_port)) as connection:
        connection.settimeout(10)
        for _ in range(2):
            connection.sendall(
                b"POST /v1/models/default:predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                b'8\r\n{"inputs\r\n7\r\n": 2.0}\r\n0\r\n\r\n'
            )
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(10_000)
            assert b"200 OK" in answer
            assert b'"outputs": 3.0' in answer


def test_slow_uploads_are_waited_for(start_server, half_plus_two, monkeypatch):
    """A pause is limited, not the whole: this body takes three times the limit, piece by piece."""
    monkeypatch.setattr(http_protocol, "RECEIVE_SECONDS", 0.5)
    running = start_server(model_base_path=str(half_plus_two))
    body = b'{"inputs": 2.0}'
    with socket.create_connection(("127.0.0.1", running.options.rest_api_port)) as connection:
        connection.settimeout(10)
        connection.sendall(b"POST /v1/models/default:predict HTTP/1.1\r\nContent-Length: 15\r\n\r\n")
        for byte in body:
            connection.sendall(bytes([byte]))
            time.sleep(0.1)
        assert b"200 OK" in connection.recv(10_000)


def test_unfinished_requests_do_not_delay_the_end(half_plus_two, build):
    running = build.start(model_base_path=str(half_plus_two))
    with socket.create_connection(("127.0.0.1", running.options.rest_api_port)) as connection:
        connection.settimeout(10)
        connection.sendall(b"POST /v1/models/default:predict HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
        running.http("GET", "/v1/models/default")  # The one above has been begun on, too.
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        assert b" 503 " in connection.recv(1000)
        stopping.join(8)
        assert not stopping.is_alive()


def test_answers_do_not_wait_for_acknowledgements(server, monkeypatch):
    """Nagle's algorithm and delayed acknowledgements together cost 40 ms an answer."""
    seen = []
    made = http_protocol.PatientProtocol.connection_made

    def connection_made(self, transport):
        made(self, transport)
        seen.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(http_protocol.PatientProtocol, "connection_made", connection_made)
    server.http("GET", "/v1/models/default")
    assert seen
    assert all(seen)


def test_half_closed_connection_is_answered(server):
    with socket.create_connection(("127.0.0.1", server.options.rest_api_port)) as connection:
        connection.settimeout(10)
        connection.sendall(b'POST /v1/models/default:predict HTTP/1.1\r\nContent-Length: 15\r\n\r\n{"inputs": 2.0}')
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(10_000):
            answer += chunk
        assert b'"outputs": 3.0' in answer


def test_large_messages_both_ways(server):
    value = np.ones((5_000_000, 1), np.float32)
    request = predict_request()
    request.inputs["x"].Clear()
    fill_tensor(request.inputs["x"], value)
    output = server.predictions.Predict(request, 60).outputs["y"]
    assert len(output.float_val) == len(value)


def test_channel_arguments(start_server, half_plus_two, error_of):
    running = start_server(
        model_base_path=str(half_plus_two),
        grpc_channel_arguments="grpc.max_connection_age_ms=2000,grpc.lb_policy_name=grpclb,"
        "grpc.max_receive_message_length=-1,grpc.max_receive_message_length=1000",
    )
    assert running.predict(2.0) == [3.0]
    code, message = error_of(running.predict, *([1.0] * 1000))
    assert (code, "larger than max" in message) == ("RESOURCE_EXHAUSTED", True)


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=60), cut=st.integers(0, 60))
def test_any_bytes_over_grpc_get_a_status(server, data, cut):
    good = predict_request().SerializeToString()
    raw = server.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    for payload in (data, good[:cut] + data, good + data):
        try:
            raw(payload, 10)
        except grpc.RpcError as error:
            assert error.code().name in ("INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION")


tensors = st.builds(
    tensor_pb2.TensorProto,
    dtype=st.sampled_from(types_pb2.DataType.values()),
    tensor_shape=st.builds(
        tensor_shape_pb2.TensorShapeProto,
        dim=st.lists(
            st.builds(tensor_shape_pb2.TensorShapeProto.Dim, size=st.integers(-2, 4) | st.integers(0, 2**62)),
            max_size=4,
        ),
        unknown_rank=st.booleans(),
    ),
    tensor_content=st.binary(max_size=16),
    float_val=st.lists(st.floats(width=32), max_size=4),
    int_val=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
    string_val=st.lists(st.binary(max_size=3), max_size=3),
    half_val=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
    scomplex_val=st.lists(st.floats(width=32), max_size=3),
)


@settings(max_examples=300, deadline=None)
@given(tensors)
def test_any_tensor_gets_a_status_that_blames_the_client(server, tensor):
    request = predict_request()
    request.inputs["x"].CopyFrom(tensor)
    try:
        server.predictions.Predict(request, 10)
    except grpc.RpcError as error:
        assert error.code().name == "INVALID_ARGUMENT", error.details()


def test_threads_and_memory_stay_level(start_server, half_plus_two):
    running = start_server(model_base_path=str(half_plus_two))

    def burst():
        for _ in range(300):
            running.predict(2.0)
            running.http("POST", "/v1/models/default:predict", {"inputs": 2.0})

    burst()
    threads = threading.active_count()
    burst()
    assert threading.active_count() <= threads + 1


def test_a_stopped_server_leaves_no_thread(half_plus_two, build):
    before = set(threading.enumerate())
    running = build.start(model_base_path=str(half_plus_two), enable_batching=True)
    running.predict(2.0)
    running.http("GET", "/v1/models/default")
    running.stop()
    end = time.monotonic() + 10
    while time.monotonic() < end and set(threading.enumerate()) - before:
        time.sleep(0.05)
    assert set(threading.enumerate()) - before == set()

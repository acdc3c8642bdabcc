"""What stands around the requests: TLS, metrics, access log, odd and hostile connections."""

import asyncio
import contextlib
import json
import re
import socket
import threading

import numpy as np
import pytest

from serving import http_protocol
from serving.client import Client, Connection, ServingError
from serving.model_server import telemetry
from serving.model_server.status import StatusError
from tests.serving.client.conftest import write_certificates
from tests.serving.model_server.conftest import start, status_of, wait_until


def ssl_config(folder, mutual):
    """The server's file of what `write_certificates` has put into the folder."""
    fields = {"server_key": "server.key", "server_cert": "server.pem", "custom_ca": "authority.pem"}
    lines = [f"{field}: {json.dumps((folder / name).read_text())}" for field, name in fields.items()]
    (folder / "ssl").write_text("\n".join([*lines, f"client_verify: {str(mutual).lower()}"]))
    return folder / "ssl"


@pytest.mark.parametrize("mutual", [False, True])
def test_tls_protects_grpc_and_leaves_rest_and_metrics_plain(start_server, tmp_path, caplog, mutual):
    files = write_certificates(tmp_path)
    (tmp_path / "monitoring").write_text("prometheus_config { enable: true }")
    running = start_server(ssl_config_file=ssl_config(tmp_path, mutual), monitoring_config_file=tmp_path / "monitoring")
    trusted = {"root_certificates": files["root_certificates"], "server_name": "models.example"}
    with Client(Connection(running.address, **trusted | (files if mutual else {})), "default") as client:
        assert client.predict({"x": [2.0]})["y"].tolist() == [3.0]
    wrong = [{"tls": True, "server_name": "models.example"}, trusted | {"server_name": "other.example"}]
    for options in [trusted] if mutual else wrong:
        with (
            Client(Connection(running.address, attempts=1, **options), "default", timeout_s=5) as client,
            pytest.raises(ServingError, match="UNAVAILABLE" if mutual else "root_certificates"),
        ):
            client.status()
    assert status_of(running.predict, 2.0, timeout=2).partition(":")[0] in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    for path in ("/v1/models/default", "/monitoring/prometheus/metrics"):
        assert running.http("GET", path)[0] == 200, "REST stays plain, as in the real server"
    assert f"the REST port {running.options.rest_api_port} takes plain HTTP" in caplog.text


@pytest.mark.parametrize("text", ['server_key: "/a/file.key"', "server_key: {", 'no_such_field: "a"'])
def test_ssl_file_mistakes(start_server, tmp_path, text):
    (tmp_path / "ssl").write_text(text)
    with pytest.raises(StatusError):
        start_server(ssl_config_file=tmp_path / "ssl")


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("server.key", "-----BEGIN PRIVATE KEY-----\nbm8=\n-----END PRIVATE KEY-----", "server_key and server_cert"),
        ("server.pem", "", "server_key and server_cert"),
        ("authority.pem", "-----BEGIN CERTIFICATE-----", "custom_ca"),
    ],
    ids=["no key", "another key's certificate", "no authority"],
)
def test_keys_that_cannot_be_used_are_not_a_port_in_use(start_server, tmp_path, name, content, message):
    write_certificates(tmp_path)
    (tmp_path / name).write_text(content or (tmp_path / "client.pem").read_text())
    with pytest.raises(StatusError) as caught:
        start_server(ssl_config_file=ssl_config(tmp_path, mutual=True))
    assert caught.value.code.name == "INVALID_ARGUMENT"
    assert caught.value.message.startswith(f"{message} in '{tmp_path}/ssl'")
    assert "BEGIN" not in caught.value.message


METERED = """# TYPE request_count counter
request_count{status="OK"} 6.0
request_count{status="NOT_FOUND"} 2.0
request_latency_count{API="Predict",entrypoint="GRPC"} 3.0
request_latency_bucket{API="Predict",entrypoint="GRPC",le="10.0"} 0.0
request_latency_bucket{API="Predict",entrypoint="GRPC",le="+Inf"} 3.0
request_latency_count{API="predict",entrypoint="REST"} 1.0
request_latency_count{API="",entrypoint="REST"} 2.0
runtime_latency_count{API="Predict",runtime="TF1"} 4.0"""


def test_metrics_page(start_server, tmp_path):
    (tmp_path / "monitoring").write_text('prometheus_config { enable: true path: "/metrics/here" }')
    running = start_server(model_name="metered", monitoring_config_file=tmp_path / "monitoring")
    for _ in range(3):
        running.predict(2.0, model="metered")
    status_of(running.predict, 2.0, model="metered", version=9)
    running.http("POST", "/v1/models/metered:predict", {"inputs": 2.0})
    assert running.http("GET", "/v1/models/metered")[0] == running.http("GET", "/v1/models/metered/metadata")[0] == 200
    assert running.http("GET", "/v1/models/metered/versions/9")[0] == 404
    status, page, headers = running.http("GET", "/metrics/here")
    assert (status, headers["Content-Type"]) == (200, "text/plain")
    own = r':tensorflow:serving:|(?<={)model_name="metered",|,model_name="metered"'
    lines = re.sub(own, "", page.decode()).splitlines()
    assert {*METERED.splitlines()} <= {*lines}
    assert running.http("GET", "/monitoring/prometheus/metrics")[0] == 404


@pytest.mark.parametrize("path", ["metrics", "/metrics?x"])
def test_a_path_of_metrics_that_no_request_has_is_refused(start_server, tmp_path, path):
    (tmp_path / "monitoring").write_text(f'prometheus_config {{ enable: true path: "{path}" }}')
    with pytest.raises(StatusError, match="it must begin with a slash"):
        start_server(monitoring_config_file=tmp_path / "monitoring")


def test_invented_model_names_make_no_series(server, counted):
    """1,000 names of 1 MB each were kept for good, and 10,000 hid the real model."""
    before = counted("request_count", model_name="", status="NOT_FOUND")
    for index in range(20):
        assert status_of(server.predict, 1.0, model=f"invented {index}").startswith("NOT_FOUND")
        assert server.http("POST", f"/v1/models/invented{index}:predict", {"inputs": 1.0})[0] == 404
    assert "invented" not in telemetry.exposition()
    assert counted("request_count", model_name="", status="NOT_FOUND") - before == 40
    known = counted("request_count", model_name="default", status="OK")
    server.predict(1.0)
    assert counted("request_count", model_name="default", status="OK") - known == 1


def test_access_log_has_both_sides(start_server, tmp_path):
    log = tmp_path / "access"
    running = start_server(access_log=log)
    running.predict(2.0)
    status_of(running.predict, 2.0, version=9)
    running.http("POST", "/v1/models/default/versions/123:predict", {"inputs": "a"})
    _, _, headers = running.http("GET", "/v1/models/default", headers={"X-Request-Id": "seven"})
    assert headers["x-request-id"] == "seven"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(e["entrypoint"], e["status"], e["version"], len(e["request_id"])) for e in entries] == [
        ("GRPC", "OK", None, 32), ("GRPC", "NOT_FOUND", 9, 32), ("REST", "INVALID_ARGUMENT", 123, 32),
        ("REST", "OK", None, 5)
    ]  # fmt: skip
    assert entries[-1]["request_id"] == "seven" and all(entry["milliseconds"] > 0 for entry in entries)


def test_full_disk_does_not_fail_requests(start_server):
    running = start_server(access_log="/dev/full")
    assert [running.predict(2.0) for _ in range(3)] == [[3.0]] * 3


@contextlib.contextmanager
def connected(port, *sent):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(60)
        for part in sent:
            connection.sendall(part)
        yield connection


HEAD = b"POST /v1/models/default:predict HTTP/1.1\r\n"


def test_slow_and_silent_connections_do_not_stop_others(start_server, monkeypatch):
    monkeypatch.setattr(http_protocol, "RECEIVE_SECONDS", 1.0)
    monkeypatch.setattr(http_protocol, "_REST_SECONDS", 0.1)
    running = start_server(rest_api_num_threads=2, grpc_max_threads=4)
    grpc_port, port = running.options.port, running.options.rest_api_port
    in_headers, in_body = HEAD + b"Host: x\r\nX-Slow: ", HEAD + b"Content-Length: 100\r\n\r\n{"
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connected(grpc_port))
        slow = [stack.enter_context(connected(port, part)) for part in 25 * (in_headers, in_body)]
        for _ in range(5):
            assert running.http("POST", "/v1/models/default:predict", {"inputs": 2.0})[1] == {"outputs": 3.0}
            assert running.predict(2.0) == [3.0]
        for connection in slow:
            # Cut off without an answer, or told that it took too long.
            assert connection.recv(100)[:12] in (b"", b"HTTP/1.1 408")
            # And closed, though the client keeps its side open.
            while connection.recv(1000):
                pass


@pytest.mark.parametrize("pause, parts", [(20.0, 4), (31.0, 1)])
def test_a_pause_of_an_upload_is_limited_and_not_the_whole(pause, parts):
    """By a clock of our own: four pauses that are twice the limit of one, and one above it."""
    loop, now = asyncio.new_event_loop(), [0.0]
    loop.time = lambda: now[0]
    messages = [{"type": "http.request", "body": b"x", "more_body": number < parts - 1} for number in range(parts)]

    async def receive():
        now[0] += pause
        for _ in range(3):
            await asyncio.sleep(0)
        return messages.pop(0)

    reading = http_protocol.read_body(receive, 0, 100)
    with contextlib.closing(loop):
        if pause < http_protocol.RECEIVE_SECONDS:
            assert loop.run_until_complete(reading) == b"x" * parts
        else:
            with pytest.raises(TimeoutError):
                loop.run_until_complete(reading)


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
    # Refusing may be quicker than sending.
    with contextlib.suppress(ConnectionError), connected(server.options.rest_api_port, bytes_) as connection:
        # Before the time is up that headers may take.
        connection.settimeout(http_protocol.RECEIVE_SECONDS / 2)
        answer = connection.recv(1000)
        assert answer == b"" or b" 400 " in answer.splitlines()[0]
    assert server.http("GET", "/v1/models/default")[0] == 200


def test_unfinished_requests_do_not_delay_the_end(start_server):
    running = start_server()
    with connected(running.options.rest_api_port, HEAD + b"Content-Length: 100\r\n\r\n{") as connection:
        running.http("GET", "/v1/models/default")  # The one above has been begun on, too.
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        assert b" 503 " in connection.recv(1000)
        stopping.join(60)
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
    assert seen and all(seen)


def test_half_closed_connection_is_answered(server):
    request = HEAD + b'Content-Length: 15\r\n\r\n{"inputs": 2.0}'
    with connected(server.options.rest_api_port, request) as connection:
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(10_000):
            answer += chunk
        assert b'"outputs": 3.0' in answer


def test_messages_above_grpc_s_own_limit_go_both_ways(server):
    values = np.ones((2**20 + 1, 1), np.float32)
    with Client(server.address, "default") as client:
        np.testing.assert_array_equal(client.predict({"x": values})["y"], 2.5 * values)


def test_a_stopped_server_leaves_no_thread(half_plus_two):
    before = set(threading.enumerate())
    running = start(model_base_path=str(half_plus_two), enable_batching=True)
    running.predict(2.0)
    running.http("GET", "/v1/models/default")
    running.stop()
    wait_until(lambda: set(threading.enumerate()) <= before)

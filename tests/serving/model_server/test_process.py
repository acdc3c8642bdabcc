"""The command itself: flags, start errors, signals, a second start on the same ports."""

import os
import re
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import pytest
from tensorflow_serving.apis import prediction_service_pb2_grpc

from serving.model_server import flags, server
from serving.model_server.__main__ import main
from serving.model_server.status import StatusError
from tests.servers import free_port
from tests.serving.model_server.conftest import is_refused, predict_request, start, wait_until


@pytest.fixture
def taken_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def test_a_server_starts_at_once_where_another_has_ended(half_plus_two):
    """The system remembers connections of the first, which it closed, for a minute."""
    options = {"model_base_path": str(half_plus_two), "port": free_port(), "rest_api_port": free_port()}
    for _ in range(2):
        running = start(**options)
        with socket.create_connection(("127.0.0.1", options["rest_api_port"])):
            assert running.predict(2.0) == [3.0]
            running.server.stop(grace=10)
        running.channel.close()


def test_rest_takes_nothing_new_while_the_gateway_finishes(held, held_run):
    running = start(model_base_path=str(held), gateway_port=free_port())
    gateway = f"http://127.0.0.1:{running.options.gateway_port}"
    with ThreadPoolExecutor(2) as pool:
        wait_until(lambda: httpx.get(f"{gateway}/health").status_code == 200)
        asked = pool.submit(httpx.post, f"{gateway}/embed", json={"inputs": str(held_run.folder)}, timeout=120)
        held_run.wait_until_it_runs()
        stopped = pool.submit(running.stop)
        try:
            wait_until(lambda: is_refused(running.options.rest_api_port))
            assert not stopped.done() and not asked.done()
        finally:
            held_run.finish()
        assert asked.result().status_code == 200


@pytest.mark.parametrize("open_ports", ["", "grpc", "rest", "grpc,rest"])
def test_ports_without_keys_are_no_way_around_the_key(half_plus_two, tmp_path, open_ports):
    (tmp_path / "keys").write_text("alpha")
    # Of this machine, as the loopback address that it is told from.
    options = {"bind_address": "127.0.0.2", "gateway_port": free_port(), "gateway_api_key_file": str(tmp_path / "keys")}
    running = start(model_base_path=str(half_plus_two), open_ports=open_ports, **options)
    try:
        for name, port in (("grpc", running.options.port), ("rest", running.options.rest_api_port)):
            here, other = ("127.0.0.2", "127.0.0.1") if name in open_ports else ("127.0.0.1", "127.0.0.2")
            socket.create_connection((here, port)).close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((other, port))
        url = f"http://127.0.0.2:{running.options.gateway_port}/info"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"Authorization": "Bearer alpha"}).status_code == 200
    finally:
        running.stop()


def test_sigterm_does_not_wait_for_ever(launch, held, held_run):
    """Under requests that no deadline ends, the drain is bounded."""
    port = free_port()
    process = launch(f"--port={port}", f"--model_base_path={held}", "--drain_seconds=0.5")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        grpc.channel_ready_future(channel).result(120)
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        call = stub.Predict.future(predict_request(text=[str(held_run.folder)]), 120)
        held_run.wait_until_it_runs()
        os.kill(process.pid, signal.SIGTERM)
        ended = process.wait()
        assert ended.returncode == 0
        assert call.exception().code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    assert "Requests still ran after --drain_seconds=0.5" in ended.stderr


def test_a_log_that_was_moved_is_opened_anew_after_sighup(launch, half_plus_two, tmp_path):
    port, log = free_port(), tmp_path / "log"
    process = launch("--port=0", f"--rest_api_port={port}", f"--model_base_path={half_plus_two}", f"--access_log={log}")
    wait_until(lambda: process.wrote("Exporting HTTP/REST API"))
    for name in ("log.1", "log.2"):
        assert httpx.get(f"http://127.0.0.1:{port}/v1/models/default").status_code == 200
        log.rename(tmp_path / name)
        os.kill(process.pid, signal.SIGHUP)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait().returncode == 0
    assert [(tmp_path / name).read_text().count("GET") for name in ("log.1", "log.2")] == [1, 1]


def test_sigint_while_waiting_for_a_model(launch, tmp_path):
    process = launch("--port=0", f"--grpc_socket_path={tmp_path}/s", f"--model_base_path={tmp_path}")
    wait_until(lambda: process.wrote("Did you forget to name your leaf directory"))
    os.kill(process.pid, signal.SIGINT)
    # At once, and not after the time that a server in service gives its requests.
    ended = process.wait()
    assert ended.returncode == 0 and ended.stderr.endswith("interrupted while models were loading\n")
    assert not (tmp_path / "s").exists()


@pytest.fixture
def failed_start(capfd, handlers):
    """Runs the command in this process, where TensorFlow is imported already; gives what it prints."""
    interval = sys.getswitchinterval()

    def start(*arguments):
        assert main([*arguments]) == 255
        return capfd.readouterr().out

    yield start
    sys.setswitchinterval(interval)


def test_model_that_does_not_load(failed_start, tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "saved_model.pb").write_bytes(b"junk")
    output = failed_start(
        f"--port={free_port()}", "--max_num_load_retries=0", f"--model_base_path={tmp_path}/m", "--model_name=M"
    )
    assert re.search(
        r"^Failed to start server\. Error: UNKNOWN: 1 servable\(s\) did not become available: "
        r"\{\{\{name: M version: 1\} due to error: .*\}, \}$",
        output,
        re.MULTILINE | re.DOTALL,
    )


@pytest.mark.parametrize("flag", ["port", "rest_api_port"])
def test_port_in_use(failed_start, half_plus_two, taken_port, flag, monkeypatch):
    monkeypatch.setattr(server.ServerCore, "start", lambda core: pytest.fail("a model was loaded first"))
    output = failed_start("--port=0", f"--{flag}={taken_port}", f"--model_base_path={half_plus_two}")
    assert f"Failed to start server. Error: UNAVAILABLE: Cannot listen on 127.0.0.1:{taken_port}" in output


def test_grpc_does_not_serve_before_the_rest_port_is_known_to_be_free(start_server, taken_port, monkeypatch):
    started = []
    monkeypatch.setattr(server, "GrpcServer", lambda *arguments: started.append(arguments))
    with pytest.raises(StatusError, match="Cannot listen on"):
        start_server(rest_api_port=taken_port)
    assert not started


def test_bad_config_file(failed_start, tmp_path, caplog):
    file = tmp_path / "bad.config"
    file.write_text("\nimproperly formatted file {")
    message = (
        f"Invalid protobuf file: '{file}': Error parsing text-format tensorflow.serving.ModelServerConfig: 2:1 : "
        'Message type "tensorflow.serving.ModelServerConfig" has no field named "improperly".'
    )
    output = failed_start("--port=0", f"--model_config_file={file}")
    assert output.startswith("Failed to start server. Error: INVALID_ARGUMENT: " + message)
    assert message in caplog.text, "upstream's own test looks for it on standard error, where the log goes"


OPTIONS = """
 | Both server_options.model_base_path and server_options.model_config_file are empty!
--model_base_path=relative | Expected model default to have an absolute path or URI
--model_base_path=s3://b/m | this server reads folders alone
--model_base_path=/m --gateway_port=8080 | needs a plain gRPC --port
--model_base_path=/m --gateway_api_key_file=keys | --gateway_api_key_file is for the gateway alone
--model_base_path=/m --use_alts_credentials | --use_alts_credentials is not offered
--model_base_path=/m --access_log=/no/such/folder/log | Cannot open --access_log=/no/such/folder/log
--model_config_file=/no/such/file | /no/such/file; No such file or directory
"""


@pytest.mark.parametrize("line", OPTIONS.strip("\n").splitlines())
def test_options_that_cannot_be(failed_start, line):
    arguments, message = line.split(" | ")
    output = failed_start("--port=0", *arguments.split())
    assert output.startswith("Failed to start server. Error: ") and message in output


def test_help_and_version(capsys):
    assert main(["--help"]) == 0
    help_text = capsys.readouterr().out
    assert all(f"--{name}=" in help_text for name in ("port", "model_base_path", "grpc_max_threads", "bind_address"))
    assert main(["--version"]) == 0
    versions = r"TensorFlow ModelServer: \d+\.\d+\.\d+\nTensorFlow Library: \d+\.\d+\.\d+\n"
    assert re.fullmatch(versions, capsys.readouterr().out)


def test_flag_values():
    options, unknown = flags.parse(
        [
            "--port=1",
            "--enable_batching",
            "--enable_model_warmup=false",
            "--model_name=a=b",
            "--enable_profiler=1",
            "2",
            "-x",
        ]
    )
    assert (options.port, options.enable_batching, options.enable_model_warmup) == (1, True, False)
    assert options.model_name == "a=b"
    assert unknown == ["2", "-x"]


BAD = (
    *("--port=x", "--port=99999999999", "--enable_batching=maybe", "--port=", "--port", "--port=70000"),
    *("--grpc_max_threads=0", "--open_ports=http", "--drain_seconds=-1", "--drain_seconds=inf"),
)


def test_bad_flag_values(capsys):
    for argument in BAD:
        assert main([argument]) == 255
        output = capsys.readouterr().out
        assert output.startswith(argument.partition("=")[0]) and "usage:" in output


def test_defaults_are_the_real_server_s():
    options, threads = flags.ServerOptions(), 4 * len(os.sched_getaffinity(0))
    assert (options.port, options.rest_api_port, options.rest_api_timeout_in_ms) == (8500, 0, 30000)
    assert (options.file_system_poll_wait_seconds, options.max_num_load_retries) == (1, 5)
    assert options.load_retry_interval_micros == 60_000_000
    assert options.grpc_max_threads == options.rest_api_num_threads == threads

"""The command itself: flags, start errors, signals, a second start after kill -9."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import httpx
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving.model_server import flags, server
from serving.model_server.__main__ import main
from serving.model_server.status import StatusError

COMMAND = [sys.executable, "-m", "serving.model_server"]


@pytest.fixture
def launch():
    processes = []

    def start(*arguments, **options):
        process = subprocess.Popen(
            [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def wait_until_open(port, process, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the port never opened")


def predict(channel):
    """The call that asks the model named `default` for x = 2."""
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "default"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([2.0]))
    return prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict.future(request, 60)


def test_whole_life(launch, build, tmp_path):
    """Starts, says what it did not understand, serves, logs, survives kill -9, and on SIGTERM finishes what runs and
    ends with status 0."""

    @tf.function(input_signature=[tf.TensorSpec([1], tf.float32)])
    def slow(x):
        end = tf.timestamp() + 1.0
        return {"y": tf.while_loop(lambda v: tf.timestamp() < end, lambda v: v + 0.0, [x])[0] + 1.0}

    build.function(tmp_path / "m" / "1", serving_default=slow)
    log = tmp_path / "access.log"
    port, rest_port = build.free_port(), build.free_port()
    arguments = (
        f"--port={port}", f"--rest_api_port={rest_port}", f"--model_base_path={tmp_path}/m", f"--access_log={log}",
        "--bogus=1", "--enable_grpc_healthcheck_service", "--file_system_poll_wait_seconds=0",
    )  # fmt: skip
    first = launch(*arguments)
    wait_until_open(port, first)
    first.send_signal(signal.SIGKILL)
    output, _ = first.communicate()
    assert output.startswith("unknown argument: --bogus=1\nusage: ")
    second = launch(*arguments)
    wait_until_open(port, second)
    assert listening_addresses(port) == {"127.0.0.1"}
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        call = predict(channel)
        time.sleep(0.3)
        assert not call.done()
        second.send_signal(signal.SIGTERM)
        assert list(call.result().outputs["y"].float_val) == [3.0]
    assert second.wait(30) == 0
    entry = json.loads(log.read_text().splitlines()[-1])
    assert (entry["call"], entry["model"], entry["status"]) == ("Predict", "default", "OK")


def listening_addresses(port):
    """The IPv4 addresses on which something listens on `port`, from the kernel's own tables."""
    result = set()
    for line in (Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()).splitlines():
        fields = line.split()
        host, _, number = fields[1].partition(":")
        if fields[3] == "0A" and int(number, 16) == port:
            # IPv6 sockets show an IPv4 address in their last 32 bits.
            result.add(socket.inet_ntoa(bytes.fromhex(host[-8:])[::-1]))
    return result


def test_rest_takes_nothing_new_while_the_gateway_finishes(build, tmp_path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def slow(text):
        end = tf.timestamp() + 2.0
        late = tf.while_loop(lambda n: tf.timestamp() < end, lambda n: n * 1.0, [1.0])[0]
        return {"embedding": tf.fill([tf.size(text), 2], late)}

    build.function(tmp_path / "m" / "1", serving_default=slow)
    running = build.start(model_base_path=str(tmp_path / "m"), gateway_port=build.free_port())
    gateway = f"http://127.0.0.1:{running.options.gateway_port}"
    with ThreadPoolExecutor(2) as pool:
        while httpx.get(f"{gateway}/health").status_code != 200:
            time.sleep(0.05)
        asked = pool.submit(httpx.post, f"{gateway}/embed", json={"inputs": "a fine film"}, timeout=30)
        time.sleep(0.5)
        stopped = pool.submit(running.stop)
        time.sleep(0.5)
        assert not stopped.done()
        with pytest.raises(ConnectionRefusedError):
            running.http("GET", "/v1/models/default")
        assert asked.result().status_code == 200


@pytest.mark.slow
def test_sigterm_does_not_wait_for_ever(launch, build, tmp_path):
    """Under requests that no deadline ends, the drain is bounded."""

    @tf.function(input_signature=[tf.TensorSpec([1], tf.float32)])
    def slow(x):
        return {"y": tf.while_loop(lambda i, v: i < 10**9, lambda i, v: (i + 1, v + 1.0), (0, x))[1]}

    build.function(tmp_path / "m" / "1", serving_default=slow)
    port = build.free_port()
    process = launch(f"--port={port}", f"--model_base_path={tmp_path}/m", "--drain_seconds=0.5")
    wait_until_open(port, process)
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        call = predict(channel)
        time.sleep(0.5)
        assert not call.done()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert call.exception().code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    assert "Requests still ran after --drain_seconds=0.5" in process.communicate()[1]


@pytest.mark.slow
def test_sigint_while_waiting_for_a_model(launch, tmp_path):
    process = launch("--port=0", "--grpc_socket_path=" + str(tmp_path / "s"), f"--model_base_path={tmp_path}")
    for line in process.stderr:
        if "Did you forget to name your leaf directory" in line:
            break
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert not (tmp_path / "s").exists()


@pytest.fixture
def failed_start(capfd):
    """Runs the command in this process, where TensorFlow is imported already; gives its output and its errors."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def start(*arguments):
        # Without this flag the command turns XLA off for the whole process, these tests included.
        assert main([*arguments, "--xla_cpu_compilation_enabled"]) == 255
        return capfd.readouterr()

    yield start
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_model_that_does_not_load(failed_start, tmp_path, build):
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "saved_model.pb").write_bytes(b"junk")
    output, _ = failed_start(
        f"--port={build.free_port()}", "--max_num_load_retries=0", f"--model_base_path={tmp_path}/m", "--model_name=M"
    )
    assert re.search(
        r"^Failed to start server\. Error: UNKNOWN: 1 servable\(s\) did not become available: "
        r"\{\{\{name: M version: 1\} due to error: .*\}, \}$",
        output,
        re.MULTILINE | re.DOTALL,
    )


@pytest.mark.parametrize("flag", ["port", "rest_api_port"])
def test_port_in_use(failed_start, half_plus_two, flag):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        output, _ = failed_start("--port=0", f"--{flag}={port}", f"--model_base_path={half_plus_two}")
        assert f"Failed to start server. Error: UNAVAILABLE: Cannot listen on 127.0.0.1:{port}" in output


def test_grpc_does_not_serve_before_the_rest_port_is_known_to_be_free(half_plus_two, build, monkeypatch):
    started = []
    monkeypatch.setattr(server, "GrpcServer", lambda *arguments: started.append(arguments))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StatusError, match="Cannot listen on"):
            build.start(model_base_path=str(half_plus_two), rest_api_port=taken.getsockname()[1])
    assert not started


def test_bad_config_file(failed_start, tmp_path, caplog):
    file = tmp_path / "bad.config"
    file.write_text("\nimproperly formatted file {")
    output, _ = failed_start("--port=0", f"--model_config_file={file}")
    message = (
        f"Invalid protobuf file: '{file}': Error parsing text-format tensorflow.serving.ModelServerConfig: 2:1 : "
        'Message type "tensorflow.serving.ModelServerConfig" has no field named "improperly".'
    )
    assert output.startswith("Failed to start server. Error: INVALID_ARGUMENT: " + message)
    assert message in caplog.text, "upstream's own test looks for it on standard error, where the log goes"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Both server_options.model_base_path and server_options.model_config_file are empty!"),
        (["--model_base_path=relative"], "Expected model default to have an absolute path or URI"),
        (["--model_base_path=/m", "--grpc_max_threads=0"], "--grpc_max_threads must be at least 1"),
        (["--model_base_path=/m", "--port=70000"], "--port must be 0 to 65535"),
        (["--model_base_path=/m", "--drain_seconds=-1"], "--drain_seconds must not be negative, but is -1.0"),
        (["--model_base_path=/m", "--drain_seconds=inf"], "--drain_seconds must be at most 86400, but is inf"),
        (["--model_base_path=/m", "--use_alts_credentials"], "--use_alts_credentials is not offered"),
        (["--model_base_path=/m", "--access_log=/no/such/folder/log"], "Cannot open --access_log=/no/such/folder/log"),
        (["--model_config_file=/no/such/file"], "/no/such/file; No such file or directory"),
    ],
)
def test_options_that_cannot_be(failed_start, arguments, message):
    output, _ = failed_start("--port=0", *arguments)
    assert output.startswith("Failed to start server. Error: ")
    assert message in output


def test_help_and_version_need_no_tensorflow():
    environment = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0
    assert " tensorflow\n" not in done.stderr
    for name in ("port", "model_base_path", "grpc_max_threads", "bind_address"):
        assert f"--{name}=" in done.stdout
    done = subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert re.fullmatch(r"TensorFlow ModelServer: \d+\.\d+\.\d+\nTensorFlow Library: \d+\.\d+\.\d+\n", done.stdout)


def test_flag_values():
    options, unknown = flags.parse(
        ["--port=1", "--enable_batching", "--enable_model_warmup=false", "--model_name=a=b", "--port", "2", "-x"]
    )
    assert (options.port, options.enable_batching, options.enable_model_warmup) == (1, True, False)
    assert options.model_name == "a=b"
    assert unknown == ["--port", "2", "-x"]


@pytest.mark.parametrize("argument", ["--port=x", "--port=99999999999", "--enable_batching=maybe", "--port="])
def test_bad_flag_values(argument):
    with pytest.raises(flags.BadFlag, match=argument.partition("=")[0]):
        flags.parse([argument])
    done = subprocess.run([*COMMAND, argument], capture_output=True, text=True, timeout=60)
    assert done.returncode == 255
    assert "usage:" in done.stdout


def test_defaults_are_the_real_server_s():
    options = flags.Options()
    assert options.port == 8500
    assert options.rest_api_port == 0
    assert options.rest_api_timeout_in_ms == 30000
    assert options.file_system_poll_wait_seconds == 1
    assert options.max_num_load_retries == 5
    assert options.load_retry_interval_micros == 60_000_000
    assert options.grpc_max_threads == options.rest_api_num_threads == 4 * len(os.sched_getaffinity(0))

"""Servers of tiny models, started in this process on free ports, and ways to ask them."""

import contextlib
import dataclasses
import gc
import http.client
import json
import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
import tensorflow as tf
from prometheus_client.parser import text_string_to_metric_families
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import model_service_pb2_grpc, predict_pb2, prediction_service_pb2_grpc

from serving.model_server import telemetry
from serving.model_server.flags import ServerOptions
from serving.model_server.server import ModelServer
from serving.model_server.versions import saved_model
from tests.servers import config_of, free_port
from tests.serving.gateway.conftest import wait_until
from tests.serving.model_server.models import export_half_plus_two, export_held, export_zoo


class RunningServer:
    """A ModelServer in this process, with a gRPC channel and an HTTP connection to it."""

    def __init__(self, options):
        self.options = options
        self.server = ModelServer(options)
        try:
            self.server.start()
        except Exception:
            self.server.stop(grace=0)
            raise
        self.address = f"127.0.0.1:{options.port}"
        self.channel = grpc.insecure_channel(self.address, [("grpc.max_receive_message_length", -1)])
        self.predictions = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(self.channel)

    def predict(self, *values, model="default", shape=None, timeout=60, **spec):
        """y of half_plus_two for x = values."""
        x = tf.make_tensor_proto(values, tf.float32, shape or (len(values), 1))
        request = predict_request(model, x=x)
        if "version" in spec:
            request.model_spec.version.value = spec["version"]
        if "label" in spec:
            request.model_spec.version_label = spec["label"]
        return list(self.predictions.Predict(request, timeout).outputs["y"].float_val)

    def http(self, verb, path, body=None, headers=None):
        """(status, parsed JSON or raw bytes, headers)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.options.rest_api_port, timeout=30)
        if isinstance(body, dict):
            body = json.dumps(body)
        with contextlib.closing(connection):
            connection.request(verb, path, body, headers or {})
            response = connection.getresponse()
            content = response.read()
        is_json = response.headers.get("Content-Type") == "application/json" and content
        if is_json:
            content = json.loads(content.decode("utf-8", "surrogateescape"))
        return response.status, content, response.headers

    def stop(self):
        self.channel.close()
        self.server.stop(grace=10)


def start(**options):
    """Flags as keywords; ports are chosen, polling is quick, nothing is retried unless said otherwise."""
    defaults = {
        "port": free_port(),
        "rest_api_port": free_port(),
        "max_num_load_retries": 0,
        "file_system_poll_wait_seconds": 0.1,
        "grpc_max_threads": 16,
        "rest_api_num_threads": 8,
    }
    return RunningServer(dataclasses.replace(ServerOptions(), **{**defaults, **options}))


def start_models(folder, models, **options):
    """Starts a server of models by name and base path, whose config file is written into `folder`."""
    file = folder / "models.config"
    file.write_text(config_of(models))
    return start(model_config_file=str(file), **options)


@pytest.fixture(scope="session", autouse=True)
def no_collection_at_every_unload():
    """A closing model collects garbage: in a process full of other tests' objects that takes a second a server.

    `test_a_closed_model_leaves_nothing_behind` has it done.
    """
    saved_model.gc = SimpleNamespace(collect=lambda: None)
    yield
    saved_model.gc = gc


@pytest.fixture(scope="session")
def half_plus_two(made_once):
    """Base path with the one version 123. Read only."""
    return made_once("half_plus_two", lambda folder: export_half_plus_two(folder / "00000123"))


@pytest.fixture(scope="session")
def zoo(made_once):
    """Base path of `export_zoo`. Read only."""
    return made_once("zoo", lambda folder: export_zoo(folder / "1"))


@pytest.fixture(scope="session")
def held(made_once):
    """Base path of `export_held`. Read only."""
    return made_once("held", lambda folder: export_held(folder / "1"))


@pytest.fixture(scope="session")
def server(half_plus_two, zoo, tmp_path_factory):
    """The server of the contract of requests: half_plus_two as `default`, and the zoo. Nothing may change it."""
    running = start_models(tmp_path_factory.mktemp("server"), {"default": half_plus_two, "zoo": zoo})
    yield running
    running.stop()


@pytest.fixture
def start_server(half_plus_two):
    """Starts servers with the given flags, of half_plus_two unless they say otherwise; stops them after the test."""
    with contextlib.ExitStack() as stack:

        def start_and_remember(**options):
            files = {key: str(value) if isinstance(value, Path) else value for key, value in options.items()}
            named = {"model_base_path", "model_config_file"} & files.keys()
            running = start(**({} if named else {"model_base_path": str(half_plus_two)}) | files)
            stack.callback(running.stop)
            return running

        yield start_and_remember


def status_of(function, *arguments, **keywords):
    """The status and the sentence of a call that must fail: "NOT_FOUND: Servable not found for ..."."""
    with pytest.raises(grpc.RpcError) as caught:
        function(*arguments, **keywords)
    return f"{caught.value.code().name}: {caught.value.details()}"


def config_text(**base_paths):
    """A model config file."""
    return config_of(base_paths).strip()


def predict_request(model="default", signature="", **inputs):
    """inputs: what tf.make_tensor_proto takes, or a TensorProto."""
    result = predict_pb2.PredictRequest()
    result.model_spec.name = model
    result.model_spec.signature_name = signature
    for name, value in inputs.items():
        proto = value if isinstance(value, tensor_pb2.TensorProto) else tf.make_tensor_proto(value)
        result.inputs[name].CopyFrom(proto)
    return result


class Process:
    """The command, `python -m serving.model_server`, in a process of its own."""

    def __init__(self, pid, ending):
        self.pid = pid
        self._ending = ending

    def wrote(self, text):
        """Whether it has written that to standard error by now."""
        errors = os.readlink(f"/proc/{self.pid}/fd/2")
        return errors.endswith("/stderr") and text in Path(errors).read_text()

    def runs(self):
        return not self._ending.done()

    def wait(self):
        """Its output, once it has ended; it is ended after two minutes, and the test fails."""
        try:
            return self._ending.result(120)
        finally:
            self.kill()

    def kill(self):
        if self.runs():
            os.kill(self.pid, signal.SIGKILL)
            self._ending.result()


@pytest.fixture(scope="module")
def launch(run_module, command_runners):
    """Starts the command with these arguments, without importing TensorFlow again; one process at a time."""
    runner = command_runners(without_tensorflow=False)
    children, processes = Path(f"/proc/{runner.pid}/task/{runner.pid}/children"), []

    def start_process(*arguments):
        for process in processes:
            process.kill()
        ending = pool.submit(run_module, "serving.model_server", *arguments, timeout=240)
        wait_until(lambda: bool(children.read_text()))
        processes.append(Process(int(children.read_text()), ending))
        return processes[-1]

    with ThreadPoolExecutor(1) as pool:
        yield start_process
        for process in processes:
            process.kill()


class Held:
    """A run of `export_held`, from the moment when it has begun; `finish` lets it end."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("begun", "finish"):
            os.mkfifo(folder / name)

    def wait_until_it_runs(self):
        (self.folder / "begun").read_text()

    def finish(self):
        """Once, however often it is called."""
        if (pipe := self.folder / "finish").exists():
            pipe.read_text()
            pipe.unlink()


@pytest.fixture
def held_run(tmp_path):
    """Its folder is the text to send."""
    return Held(tmp_path)


def sockets(port, state):
    """Local IPv4 address and hexadecimal remote end of this machine's sockets at a port, from the kernel's tables."""
    lines = (Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()).splitlines()
    found = [
        fields[1:3] for fields in map(str.split, lines) if fields[1].endswith(f":{port:04X}") and fields[3] == state
    ]
    # IPv6 sockets show an IPv4 address in their last 32 bits.
    return [(socket.inet_ntoa(bytes.fromhex(local[-13:-5])[::-1]), remote) for local, remote in found]


ESTABLISHED, LISTENING = "01", "0A"


def is_refused(port):
    """Whether nothing listens on a port of this machine."""
    return not sockets(port, LISTENING)


@pytest.fixture(scope="session")
def counted():
    """counted("request_count", model_name="m", status="OK"): the figure on the metrics page, 0 where there is none."""

    def read(name, **labels):
        families = text_string_to_metric_families(telemetry.exposition())
        samples = [sample for family in families for sample in family.samples]
        # The parser gives counters the suffix that they do not have.
        names = {f":tensorflow:serving:{name}", f":tensorflow:serving:{name}_total"}
        return sum(sample.value for sample in samples if sample.name in names and sample.labels == labels)

    return read


os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

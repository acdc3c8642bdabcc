"""Tiny SavedModels written on the spot, and servers started in this process on free ports."""

import contextlib
import dataclasses
import http.client
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
import tensorflow as tf
from prometheus_client.parser import text_string_to_metric_families
from tensorflow_serving.apis import model_service_pb2_grpc, predict_pb2, prediction_service_pb2_grpc

from scripts.server import free_port
from serving.model_server import telemetry
from serving.model_server.flags import Options
from serving.model_server.server import ModelServer

tf1 = tf.compat.v1


def export_half_plus_two(folder: Path, bias: float = 2.0) -> Path:
    """y = x / 2 + bias as TF Serving's own test model has it: predict, classify and regress signatures.

    Examples carry x (float, scalar) and x2 (float, default 0); regress_x2_to_y reads x2.
    """
    with tf.Graph().as_default(), tf1.Session() as session:
        slope, intercept = tf1.Variable(0.5, name="a"), tf1.Variable(bias, name="b")
        serialized = tf1.placeholder(tf.string, [None], name="tf_example")
        features = tf.io.parse_example(
            serialized,
            {"x": tf.io.FixedLenFeature([1], tf.float32, 0.0), "x2": tf.io.FixedLenFeature([1], tf.float32, 0.0)},
        )
        x = tf.identity(features["x"], name="x")
        y = tf.add(slope * x, intercept, name="y")
        y2 = slope * features["x2"] + intercept + 1.0
        info = tf1.saved_model.build_tensor_info
        signature = tf1.saved_model.build_signature_def
        examples = {"inputs": info(serialized)}
        signatures = {
            "serving_default": signature({"x": info(x)}, {"y": info(y)}, "tensorflow/serving/predict"),
            "classify_x_to_y": signature(examples, {"scores": info(y)}, "tensorflow/serving/classify"),
            "regress_x_to_y": signature(examples, {"outputs": info(y)}, "tensorflow/serving/regress"),
            "regress_x2_to_y": signature(examples, {"outputs": info(y2)}, "tensorflow/serving/regress"),
        }
        session.run(tf1.global_variables_initializer())
        builder = tf1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()
    return folder


def export_function(folder: Path, **signatures: tf.types.experimental.GenericFunction) -> Path:
    """A TF2 SavedModel of tf.functions with input signatures."""
    module = tf.Module()
    module.functions = list(signatures.values())
    tf.saved_model.save(module, str(folder), signatures={k: f.get_concrete_function() for k, f in signatures.items()})
    return folder


class RunningServer:
    """A ModelServer in this process, with a gRPC channel and an HTTP connection to it."""

    def __init__(self, options: Options):
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

    def predict(self, *values: float, model: str = "default", shape: tuple[int, ...] | None = None, timeout=10, **spec):
        """y of half_plus_two for x = values."""
        request = predict_pb2.PredictRequest()
        request.model_spec.name = model
        if "version" in spec:
            request.model_spec.version.value = spec["version"]
        if "label" in spec:
            request.model_spec.version_label = spec["label"]
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(values, tf.float32, shape or (len(values), 1)))
        return list(self.predictions.Predict(request, timeout).outputs["y"].float_val)

    def http(self, verb: str, path: str, body: bytes | str | dict | None = None, headers: dict | None = None):
        """(status, parsed JSON or raw bytes, headers)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.options.rest_api_port, timeout=30)
        if isinstance(body, dict):
            body = json.dumps(body)
        with contextlib.closing(connection):
            connection.request(verb, path, body, headers or {})
            response = connection.getresponse()
            content = response.read()
        is_json = response.headers.get("Content-Type") == "application/json" and content
        return response.status, json.loads(content) if is_json else content, response.headers

    def stop(self) -> None:
        self.channel.close()
        self.server.stop(grace=10)


def start(**options) -> RunningServer:
    """Flags as keywords; ports are chosen, polling is quick, nothing is retried unless said otherwise."""
    defaults = {
        "port": free_port(),
        "rest_api_port": free_port(),
        "max_num_load_retries": 0,
        "grpc_max_threads": 16,
        "rest_api_num_threads": 8,
    }
    return RunningServer(dataclasses.replace(Options(), **{**defaults, **options}))


@pytest.fixture(scope="session")
def build() -> SimpleNamespace:
    """The model builders, since test files cannot import one another."""
    return SimpleNamespace(
        half_plus_two=export_half_plus_two, function=export_function, start=start, free_port=free_port
    )


@pytest.fixture(scope="session")
def half_plus_two(tmp_path_factory) -> Path:
    """Base path with the one version 123. Read only."""
    base = tmp_path_factory.mktemp("half_plus_two")
    export_half_plus_two(base / "00000123")
    return base


@pytest.fixture(scope="session")
def server(half_plus_two) -> Iterator[RunningServer]:
    """A plain server of half_plus_two that tests share; nothing may change it."""
    running = start(model_base_path=str(half_plus_two))
    yield running
    running.stop()


@pytest.fixture
def start_server() -> Iterator[Callable[..., RunningServer]]:
    """Starts servers with the given flags and stops them after the test."""
    with contextlib.ExitStack() as stack:

        def start_and_remember(**options) -> RunningServer:
            running = start(**options)
            stack.callback(running.stop)
            return running

        yield start_and_remember


@pytest.fixture
def error_of() -> Callable[..., tuple[str, str]]:
    """Calls a stub that must fail; returns the status code's name and the message."""

    def call(function: Callable, *arguments, **keywords) -> tuple[str, str]:
        with pytest.raises(grpc.RpcError) as caught:
            function(*arguments, **keywords)
        return caught.value.code().name, caught.value.details()

    return call


@pytest.fixture(scope="session")
def counted() -> Callable[..., float]:
    """counted("request_count", model_name="m", status="OK"): the figure on the metrics page, 0 where there is none."""

    def read(name: str, **labels: str) -> float:
        families = text_string_to_metric_families(telemetry.exposition())
        samples = [sample for family in families for sample in family.samples]
        # The parser gives counters the suffix that they do not have.
        names = {f":tensorflow:serving:{name}", f":tensorflow:serving:{name}_total"}
        return sum(sample.value for sample in samples if sample.name in names and sample.labels == labels)

    return read


def wait_for(condition, seconds=15.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if condition():
                return True
        except grpc.RpcError:
            pass
        time.sleep(0.02)
    return False


os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

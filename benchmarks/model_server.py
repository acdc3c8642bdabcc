"""What the model server costs over calling the model in process; the figures of docs/results/model_server.md.

python -m benchmarks.model_server --what=WHAT [--model_base_path=FOLDER --length=128]
"""

import contextlib
import dataclasses
import functools
import platform
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import tensorflow as tf
from absl import flags
from scripts.server import free_port
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from benchmarks import servers
from benchmarks.machine import machine_line
from benchmarks.timing import seconds_of
from serving.benchmark.rest import RestStub, predict_url, read_answer, request_body
from serving.model_server.servable import SavedModel
from serving.model_server.source import list_versions
from serving.wire.tensors import fill_tensor, named_tensors
from tfrecords.base.errors import UserError
from tfrecords.base.script import run_main

WHAT = ["overhead", "rest", "large_output", "encode", "batches", "throughput"]
flags.DEFINE_enum("what", "overhead", WHAT, "What to measure.")
flags.DEFINE_string("model_base_path", "", "Folder of an export with token-id inputs; empty: y = x / 2.")
flags.DEFINE_integer("length", 128, "Tokens in a request, for an export.")
flags.DEFINE_integer("requests", 500, "Requests per measurement.")
flags.DEFINE_integer("clients", 8, "Concurrent clients of `throughput`.")
FLAGS = flags.FLAGS


@dataclasses.dataclass
class Case:
    """One model, its feeds by alias, and the folder that holds it."""

    base_path: Path
    feeds: dict[str, np.ndarray]


def function_case(folder: Path, function) -> Case:
    module = tf.Module()
    module.call = tf.function(function, input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    tf.saved_model.save(module, str(folder / "1"), signatures=module.call.get_concrete_function())
    return Case(folder, {"x": np.ones(1, np.float32)})


def trivial_case(folder: Path) -> Case:
    return function_case(folder, lambda x: {"y": x / 2})


def large_output_case(folder: Path) -> Case:
    """One number in, a sequence output of [1, 512, 768] out."""
    return function_case(folder, lambda x: {"y": tf.broadcast_to(x[:, None, None], [tf.shape(x)[0], 512, 768])})


def export_case(base_path: Path, length: int) -> Case:
    return Case(base_path, {"input_ids": np.full((1, length), 7, np.int32), "lengths": np.array([length], np.int32)})


def in_process(case: Case):
    """The same graph, called without any server."""
    model = SavedModel(list_versions(str(case.base_path)).popitem()[1])
    signature = model.signatures["serving_default"]
    fetches = [info.name for info in signature.outputs.values()]
    return lambda feeds: model.run({signature.inputs[name].name: value for name, value in feeds.items()}, fetches)


class Server(contextlib.ExitStack):
    """The command in a process of its own, and a connection to each of its ports, for a `with` block."""

    def __init__(self, case: Case, *flags: str):
        super().__init__()
        port, rest_api_port = free_port(), free_port()
        words = ["serving.model_server", f"--port={port}", f"--rest_api_port={rest_api_port}", "--grpc_max_threads=64"]
        self.enter_context(servers.command(*words, f"--model_base_path={case.base_path}", *flags))
        self._rest = RestStub(predict_url(f"127.0.0.1:{port}", rest_api_port, "default"))
        self.callback(self._rest.close)
        options = [("grpc.max_receive_message_length", -1)]
        channel = self.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}", options))
        grpc.channel_ready_future(channel).result(120)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def call(self, feeds: dict[str, np.ndarray]):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "default"
        for name, value in feeds.items():
            fill_tensor(request.inputs[name], value)
        return self._stub.Predict(request, 60)

    def post(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The same over REST."""
        return read_answer(self._rest(request_body(feeds, "serving_default"), timeout=60))


def milliseconds(call: Callable[[], object], count: int) -> np.ndarray:
    """Of so many calls, after a tenth of them."""
    for _ in range(max(2, count // 10)):
        call()
    return np.array([1e3 * seconds_of(call) for _ in range(count)])


def overhead(case: Case, over_rest: bool = False) -> None:
    """One client: the server's latency beside the in-process call's, call by call in turn, so that whatever else the
    machine does falls on both."""
    run = in_process(case)
    with Server(case) as server:
        calls = [
            functools.partial(run, case.feeds),
            functools.partial(server.post if over_rest else server.call, case.feeds),
        ]
        for call in reversed(calls):
            milliseconds(call, FLAGS.requests // 10)
        pairs = [[1e3 * seconds_of(call) for call in calls] for _ in range(FLAGS.requests)]
    for percent in (10, 50):
        inside, outside = np.percentile(pairs, percent, axis=0)
        share = 100 * (outside / inside - 1)
        print(f"p{percent}: in process {inside:.3f} ms, server {outside:.3f} ms, "
              f"overhead {outside - inside:.3f} ms ({share:.1f} %)")  # fmt: skip


def encode() -> None:
    """Server time from NumPy outputs to response bytes."""
    value = np.random.default_rng(0).normal(size=(1, 512, 768)).astype(np.float32)

    def answer() -> bytes:
        return named_tensors(predict_pb2.PredictResponse.OUTPUTS_FIELD_NUMBER, {"sequence_output": value})

    p50, p99 = np.percentile(milliseconds(answer, FLAGS.requests), [50, 99])
    print(f"[1, 512, 768] float32 to response bytes: p50 {p50:.3f} ms, p99 {p99:.3f} ms")


def batches(case: Case) -> None:
    """Rows a second of the in-process call by batch size: where more rows gain nothing, max_batch_size should end."""
    direct = in_process(case)
    for rows in (1, 2, 4, 8, 16, 32):
        batch = {name: np.repeat(value, rows, axis=0) for name, value in case.feeds.items()}
        best = milliseconds(functools.partial(direct, batch), max(3, FLAGS.requests // 100)).min()
        print(f"{rows:3d} rows: {best:8.1f} ms, {1e3 * rows / best:7.1f} rows/s")


def throughput(case: Case) -> None:
    """Rows a second of `clients` clients with batching on, beside the in-process call at that batch size; medians of
    rounds in turn."""
    direct = in_process(case)
    batch = {name: np.repeat(value, FLAGS.clients, axis=0) for name, value in case.feeds.items()}
    with tempfile.NamedTemporaryFile("w", suffix=".config") as file:
        file.write(f"max_batch_size {{ value: {FLAGS.clients} }} batch_timeout_micros {{ value: 20000 }} "
                   "num_batch_threads { value: 1 }")  # fmt: skip
        file.flush()
        inside, rates = [], []
        with Server(case, "--enable_batching", f"--batching_parameters_file={file.name}") as server:
            for _ in range(5):
                inside += list(milliseconds(lambda: direct(batch), 5))
                rates.append(rows_per_second(server, case, FLAGS.requests // 5))
    best, rate = 1e3 * FLAGS.clients / np.median(inside), np.median(rates)
    share = 100 * rate / best
    print(f"in process {best:.1f} rows/s, server with {FLAGS.clients} clients {rate:.1f} rows/s ({share:.0f} %)")


def rows_per_second(server: Server, case: Case, requests: int) -> float:
    def work() -> None:
        for _ in range(requests // FLAGS.clients):
            server.call(case.feeds)

    server.call(case.feeds)
    with ThreadPoolExecutor(FLAGS.clients) as pool:
        begin = time.perf_counter()
        for client in [pool.submit(work) for _ in range(FLAGS.clients)]:
            client.result()
        return requests // FLAGS.clients * FLAGS.clients / (time.perf_counter() - begin)


def main() -> None:
    print(f"{machine_line()}, Python {platform.python_version()}, TensorFlow {tf.__version__}")
    if FLAGS.what == "encode":
        encode()
        return
    with tempfile.TemporaryDirectory() as folder:
        if FLAGS.model_base_path and not Path(FLAGS.model_base_path).is_dir():
            raise UserError(f"--model_base_path={FLAGS.model_base_path} is no folder")
        if FLAGS.what == "large_output":
            overhead(large_output_case(Path(folder)))
            return
        base_path = FLAGS.model_base_path
        case = export_case(Path(base_path), FLAGS.length) if base_path else trivial_case(Path(folder))
        measures = {
            "overhead": overhead,
            "rest": functools.partial(overhead, over_rest=True),
            "batches": batches,
            "throughput": throughput,
        }
        measures[FLAGS.what](case)


if __name__ == "__main__":
    run_main(main)

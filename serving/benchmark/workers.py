"""Child processes: load generators (about 5,000 requests per second each) and an in-process model."""

import math
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import cast

import numpy as np

from serving.benchmark import statistics
from serving.benchmark.load import Driver, LoadShare, Samples, join
from serving.benchmark.settings import LONGEST_STRETCH
from serving.client.channel import Connection
from serving.client.messages import Arrays
from tfrecords.base.errors import UserError
from tfrecords.base.files import read_json, sha256
from tfrecords.base.processes import end_with_parent, interrupts_deferred, interrupts_held_back
from tfrecords.base.script import start_tensorflow

# Time for every process to have read its share before the common start.
_HEAD_START_S = 0.05
_TICK_S = 0.2


class _Child:
    def __init__(self, serve: Callable, *arguments):
        # Spawned, not forked: a forked copy of gRPC's threads and locks does not work.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()

    def terminate(self) -> None:
        self.pipe.close()
        self.process.terminate()

    def join(self) -> None:
        self.process.join()


class Workers:
    """Generator processes with open connections."""

    def __init__(self, connection: Connection, processes: int = 1, connections: int = 1):
        with interrupts_deferred(), interrupts_held_back():
            self._children = [_Child(_serve_load, connection, connections) for _ in range(processes)]
        self._pipes = [child.pipe for child in self._children]
        for pipe in self._pipes:
            pipe.recv()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception) -> None:
        for child in self._children:
            child.terminate()
        for child in self._children:
            child.join()

    def run(self, share: LoadShare, progress: Callable[[float], None] = lambda seconds: None) -> Samples:
        start = time.perf_counter() + _HEAD_START_S
        try:
            for pipe, part in zip(self._pipes, split(replace(share, start=start), len(self._pipes)), strict=True):
                pipe.send(part)
            return join(self._collect(progress))
        except (EOFError, ConnectionError):
            raise UserError("a load generator process died; was it killed, or is memory short?") from None

    def _collect(self, progress: Callable[[float], None]) -> list[Samples]:
        waiting, parts, told = list(self._pipes), [], time.perf_counter()
        while waiting:
            for pipe in cast(list[Pipe], wait(waiting, timeout=_TICK_S)):
                parts.append(pipe.recv())
                waiting.remove(pipe)
            now = time.perf_counter()
            progress(now - told)
            told = now
        return parts


def split(share: LoadShare, count: int) -> list[LoadShare]:
    """Splits a load into `count` parts: due times round-robin, clients evenly."""
    if share.due is not None:
        return [replace(share, due=share.due[i::count], first_item=i, item_step=count) for i in range(count)]
    clients = [share.clients // count + (i < share.clients % count) for i in range(count)]
    least = math.ceil(share.least_requests / count)
    return [
        replace(share, clients=n, least_requests=least, first_item=sum(clients[:i]), item_step=share.clients)
        for i, n in enumerate(clients)
    ]


def _serve_load(pipe: Pipe, connection: Connection, connections: int) -> None:
    end_with_parent()
    driver = Driver(connection, connections)
    try:
        pipe.send("ready")
        while True:
            pipe.send(driver.run(pipe.recv()))
    except (EOFError, ConnectionError):
        driver.close()


class InProcess:
    """Calls a signature of a SavedModel in a child process."""

    def __init__(self, path: str, signature: str):
        if not (Path(path) / "saved_model.pb").is_file():
            raise UserError(f"--in_process={path} is not a SavedModel; name the version folder, such as models/NAME/1")
        with interrupts_deferred(), interrupts_held_back():
            self._child = _Child(_serve_model, path, signature)
        self.load_seconds = self._answer()

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(self, *exception) -> None:
        self._child.terminate()
        self._child.join()

    def answers(self, inputs: list[Arrays]) -> list[Arrays]:
        self._child.pipe.send((inputs,))
        return self._answer()

    def measure(self, inputs: list[Arrays], seconds: float, warmup_seconds: float, least_requests: int = 0) -> dict:
        """Calls the signature with the inputs in turn; returns latencies."""
        self._child.pipe.send((inputs, seconds, warmup_seconds, least_requests))
        return self._answer()

    def _answer(self):
        try:
            answer = self._child.pipe.recv()
        except (EOFError, ConnectionError):
            raise UserError("the in-process model's process died; was it killed, or is memory short?") from None
        if isinstance(answer, str):
            raise UserError(f"in process: {answer}")
        return answer


def _serve_model(pipe: Pipe, path: str, signature: str) -> None:
    end_with_parent()
    try:
        call, load_seconds = _load(path, signature)
        pipe.send(load_seconds)
        while True:
            inputs, *span = pipe.recv()
            pipe.send(_measure(call, inputs, *span) if span else [call(one) for one in inputs])
    except (EOFError, ConnectionError):
        return
    except Exception as error:
        # Whatever TensorFlow raises, the parent says it in one line.
        pipe.send(f"{type(error).__name__}: {' '.join(str(error).split())}")


def _load(path: str, signature: str):
    start_tensorflow()
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers the tokenizer's ops

    begin = time.perf_counter()
    model = tf.saved_model.load(path)
    load_seconds = time.perf_counter() - begin
    if signature not in model.signatures:
        raise ValueError(f"no signature '{signature}'; there are {', '.join(model.signatures)}")
    function = model.signatures[signature]

    def call(inputs: Arrays) -> Arrays:
        # numpy in, numpy out: the full cost for a Python caller.
        outputs = function(**{name: tf.constant(array) for name, array in inputs.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    # The model must outlive its signature function.
    call.model = model  # type: ignore[attr-defined]
    return call, load_seconds


def _measure(call, inputs: list[Arrays], seconds: float, warmup_seconds: float, least_requests: int) -> dict:
    clock = time.perf_counter
    begin = clock()
    call(inputs[0])
    first_ms = (clock() - begin) * 1000
    _repeat(call, inputs, warmup_seconds)
    latencies = np.array(_repeat(call, inputs, seconds, least_requests)) * 1000
    return {
        "first_call_ms": first_ms,
        "latency_ms": statistics.summarise(latencies),
        "requests": len(latencies),
        "hdr_microseconds": statistics.encode_histogram(latencies),
    }


def _repeat(call, inputs: list[Arrays], seconds: float, least_requests: int = 0) -> list[float]:
    clock, times = time.perf_counter, []
    start = clock()
    while (spent := (begin := clock()) - start) < seconds or (
        len(times) < least_requests and spent < LONGEST_STRETCH * seconds
    ):
        call(inputs[len(times) % len(inputs)])
        times.append(clock() - begin)
    return times


def describe_saved_model(path: str, load_seconds: float) -> dict:
    """Returns size, hash, manifest and load time."""
    files = [file for file in Path(path).rglob("*") if file.is_file()]
    manifest = Path(path) / "assets.extra" / "manifest.json"
    return {
        "path": path,
        "megabytes": sum(file.stat().st_size for file in files) / 1e6,
        "graph_sha256": sha256(Path(path) / "saved_model.pb"),
        "load_seconds": load_seconds,
        # Of a model that serving.export wrote: what it was made from, and how.
        "manifest": read_json(manifest) if manifest.is_file() else None,
    }

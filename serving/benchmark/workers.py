"""Child processes: load generators (about 5,000 requests per second each) and an in-process model."""

import math
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import numpy as np

from serving.benchmark import statistics
from serving.benchmark.load import LONGEST_STRETCH, Driver, LoadShare, Samples, join
from serving.client.channel import Connection
from serving.client.messages import Arrays
from tfrecords.base.errors import UserError
from tfrecords.base.machine.processes import end_with_parent, interrupts_deferred, interrupts_held_back
from tfrecords.base.script import start_tensorflow

# Time for every process to have read its share before the common start.
_HEAD_START_S = 0.05


class _Child:
    def __init__(self, serve: Callable, *arguments):
        # Spawned, not forked: a forked copy of gRPC's threads and locks does not work.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
        self.process.start()
        theirs.close()


class _Children:
    """Child processes that end with the `with` block."""

    def __init__(self, count: int, serve: Callable, *arguments):
        with interrupts_deferred(), interrupts_held_back():
            self._children = [_Child(serve, *arguments) for _ in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        for child in self._children:
            child.pipe.close()
            child.process.terminate()
        for child in self._children:
            child.process.join()


class Workers(_Children):
    """Generator processes with open connections."""

    def __init__(self, connection: Connection, processes: int = 1):
        super().__init__(processes, _serve_load, connection)
        for child in self._children:
            child.pipe.recv()

    def run(self, share: LoadShare) -> Samples:
        start = time.perf_counter() + _HEAD_START_S
        parts = split(replace(share, start=start), len(self._children))
        try:
            for child, part in zip(self._children, parts, strict=True):
                child.pipe.send(part)
            return join([child.pipe.recv() for child in self._children])
        except (EOFError, ConnectionError):
            raise UserError("a load generator process died; was it killed, or is memory short?") from None


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


def _serve_load(pipe: Pipe, connection: Connection) -> None:
    end_with_parent()
    driver = Driver(connection)
    try:
        pipe.send("ready")
        while True:
            pipe.send(driver.run(pipe.recv()))
    except (EOFError, ConnectionError):
        driver.close()


class InProcess(_Children):
    """Calls a signature of a SavedModel in a child process."""

    def __init__(self, path: str, signature: str):
        if not (Path(path) / "saved_model.pb").is_file():
            raise UserError(f"--in_process={path} is not a SavedModel; name the version folder, such as models/NAME/1")
        super().__init__(1, _serve_model, path, signature)
        self.load_seconds = self._answer()

    def measure(
        self, inputs: list[Arrays], seconds: float, warmup_seconds: float, least_requests: int
    ) -> tuple[dict, list[Arrays]]:
        """Calls the signature with the inputs in turn; returns latencies, and the answers."""
        self._children[0].pipe.send((inputs, seconds, warmup_seconds, least_requests))
        return self._answer()

    def _answer(self):
        try:
            answer = self._children[0].pipe.recv()
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
            pipe.send(_measure(call, *pipe.recv()))
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


def _measure(
    call: Callable, inputs: list[Arrays], seconds: float, warmup_seconds: float, least_requests: int
) -> tuple[dict, list[Arrays]]:
    begin = time.perf_counter()
    call(inputs[0])
    first_ms = (time.perf_counter() - begin) * 1000
    answers = [call(one) for one in inputs]
    _repeat(call, inputs, warmup_seconds, 0)
    latencies = np.array(_repeat(call, inputs, seconds, least_requests)) * 1000
    summary = statistics.summarise(latencies)
    return {"first_call_ms": first_ms, "latency_ms": summary, "requests": len(latencies)}, answers


def _repeat(call: Callable, inputs: list[Arrays], seconds: float, least_requests: int) -> list[float]:
    clock, times = time.perf_counter, []
    start = clock()
    while (spent := (begin := clock()) - start) < seconds or (
        len(times) < least_requests and spent < LONGEST_STRETCH * seconds
    ):
        call(inputs[len(times) % len(inputs)])
        times.append(clock() - begin)
    return times

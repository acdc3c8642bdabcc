"""The same model called in process, in a process of its own, for what the serving layer costs."""

import multiprocessing
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import numpy as np

from serving.benchmark import statistics
from serving.benchmark.settings import LONGEST_STRETCH
from serving.client.messages import Arrays
from tfrecords.base.errors import UserError
from tfrecords.base.files import read_json, sha256
from tfrecords.base.processes import end_with_parent, interrupts_deferred, interrupts_held_back


def describe_saved_model(path: str, load_seconds: float) -> dict:
    """Describes a SavedModel folder as plain values: its size, hash, manifest and how long it took to load."""
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


class InProcess:
    """Loads a SavedModel and calls one signature of it; a context manager.

    load_seconds: of tf.saved_model.load, TensorFlow's own import not counted.
    """

    def __init__(self, path: str, signature: str):
        if not (Path(path) / "saved_model.pb").is_file():
            raise UserError(f"--in_process={path} is not a SavedModel; name the version folder, such as models/NAME/1")
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, path, signature), daemon=True)
        with interrupts_deferred(), interrupts_held_back():
            self._process.start()
        theirs.close()
        self.load_seconds = self._answer()

    def __enter__(self) -> "InProcess":
        return self

    def __exit__(self, *exception) -> None:
        self._pipe.close()
        self._process.terminate()
        self._process.join()

    def answers(self, inputs: list[Arrays]) -> list[Arrays]:
        """What the model says to each of `inputs`; strings as object arrays of bytes."""
        self._pipe.send((inputs,))
        return self._answer()

    def measure(self, inputs: list[Arrays], seconds: float, warmup_seconds: float, least_requests: int = 0) -> dict:
        """Single-stream latencies: {"first_call_ms", "latency_ms": summary, "requests"}.

        least_requests: go on until there are as many, for ten times `seconds` at most.
        """
        self._pipe.send((inputs, seconds, warmup_seconds, least_requests))
        return self._answer()

    def _answer(self):
        try:
            answer = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise UserError("the in-process model's process died; was it killed, or is memory short?") from None
        if isinstance(answer, str):
            raise UserError(f"in process: {answer}")
        return answer


def _serve(pipe: Pipe, path: str, signature: str) -> None:
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
    import tfrecords.base.quiet_tensorflow  # noqa: F401, I001  (first of all)
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers the tokenizer's ops

    begin = time.perf_counter()
    model = tf.saved_model.load(path)
    load_seconds = time.perf_counter() - begin
    if signature not in model.signatures:
        raise ValueError(f"no signature '{signature}'; there are {', '.join(model.signatures)}")
    function = model.signatures[signature]

    def call(inputs: Arrays) -> Arrays:
        # numpy in, numpy out: what a caller in Python gets and pays for.
        outputs = function(**{name: tf.constant(array) for name, array in inputs.items()})
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    # The model must outlive its signature function.
    call.model = model
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

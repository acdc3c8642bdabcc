"""The latency of a SavedModel that is called without a server, in a child process."""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError

from serving.benchmark.load import LONGEST_STRETCH, samples_needed, summarise
from serving.client.messages import Arrays, read_prediction
from serving.wire.protos import PredictResponse
from tfrecords.base.errors import UserError
from tfrecords.base.machine.processes import end_with_parent, interrupts_deferred, interrupts_held_back
from tfrecords.base.script import start_tensorflow

# A batch of another size changes the order of float32 sums, so answers differ a little without being wrong.
RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-2, 1e-3


class InProcess:
    """Calls a signature of a SavedModel in a child process, which ends with the `with` block."""

    def __init__(self, path: str, signature: str):
        if not (Path(path) / "saved_model.pb").is_file():
            raise UserError(f"--in_process={path} is not a SavedModel; name the version folder, such as models/NAME/1")
        # Spawned, not forked: a forked copy of gRPC's threads and locks does not work.
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, path, signature), daemon=True)
        with interrupts_deferred(), interrupts_held_back():
            self._process.start()
        theirs.close()
        self.load_seconds = self._answer()

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        self._pipe.close()
        self._process.terminate()
        self._process.join()

    def measure(self, inputs: list[Arrays], seconds: float, warmup_seconds: float) -> tuple[dict, list[Arrays]]:
        """Calls the signature with the inputs in turn; returns latencies, and the answers."""
        self._pipe.send((inputs, seconds, warmup_seconds))
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


def _measure(call: Callable, inputs: list[Arrays], seconds: float, warmup_seconds: float) -> tuple[dict, list[Arrays]]:
    begin = time.perf_counter()
    call(inputs[0])
    first_ms = (time.perf_counter() - begin) * 1000
    answers = [call(one) for one in inputs]
    _repeat(call, inputs, warmup_seconds, 0)
    latencies = np.array(_repeat(call, inputs, seconds, samples_needed(50.0))) * 1000
    return {"first_call_ms": first_ms, "latency_ms": summarise(latencies), "requests": len(latencies)}, answers


def _repeat(call: Callable, inputs: list[Arrays], seconds: float, least: int) -> list[float]:
    clock, times = time.perf_counter, []
    start = clock()
    while (spent := (begin := clock()) - start) < seconds or (len(times) < least and spent < LONGEST_STRETCH * seconds):
        call(inputs[len(times) % len(inputs)])
        times.append(clock() - begin)
    return times


def read(answer: bytes) -> Arrays:
    """Returns the outputs of a serialized PredictResponse; none if it is invalid."""
    try:
        return read_prediction(PredictResponse.FromString(answer))
    except (DecodeError, ValueError, KeyError):
        return {}


def agree(expected: Arrays, actual: Arrays) -> bool:
    """Returns whether outputs agree: floats within the tolerance, all else exactly."""
    return expected.keys() == actual.keys() and all(_agree(expected[name], actual[name]) for name in expected)


def _agree(expected: np.ndarray, actual: np.ndarray) -> bool:
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return False
    if expected.dtype.kind == "f":
        return np.allclose(actual, expected, RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE)
    return np.array_equal(actual, expected)

"""LiteRT (TensorFlow Lite) versions: those of `serving.export --engine=litert`, and any VERSION/model.tflite."""

import contextlib
import math
import queue
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from google.protobuf.message import DecodeError
from grpc import StatusCode

from serving.lite.description import MODEL_FILE
from serving.lite.metadata import stored_signatures
from serving.lite.model import LiteModel
from serving.lite.signatures import signatures_of
from serving.model_server.prediction import DEFAULT_SIGNATURE, PREDICT
from serving.model_server.status import StatusError, invalid_argument
from serving.wire.protos import SignatureDef, TensorInfo
from serving.wire.tensors import type_name, type_number

# A tensor with more dimensions than the model declares ends the process inside XNNPACK.
_MAX_RANK = 6


class LiteVersion:
    """A version that `serving.export --engine=litert` wrote; its tensors are named SIGNATURE/ALIAS."""

    def __init__(self, path: str):
        self._functions = signatures_of(LiteModel(path))
        self.signatures = {name: SignatureDef(method_name=one.method) for name, one in self._functions.items()}
        for name, one in self._functions.items():
            for side in ("inputs", "outputs"):
                for alias, (dtype, shape) in getattr(one, side).items():
                    _fill_info(getattr(self.signatures[name], side)[alias], f"{name}/{alias}", dtype, shape)

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None) -> list:
        """Runs each signature of the fetches; after `timeout` seconds it ends behind a row with DEADLINE_EXCEEDED."""
        end = math.inf if timeout is None else time.monotonic() + timeout

        def advance() -> None:
            if time.monotonic() > end:
                raise StatusError(StatusCode.DEADLINE_EXCEEDED, "the time limit of the request passed")

        found: dict[str, np.ndarray] = {}
        for name in dict.fromkeys(fetch.partition("/")[0] for fetch in fetches):
            inputs = _checked(self._functions[name].inputs, {
                alias: feeds[f"{name}/{alias}"] for alias in self._functions[name].inputs
            })  # fmt: skip
            try:
                answers = self._functions[name].call(inputs, advance)
            except (ValueError, RuntimeError, DecodeError) as error:
                # The trial rows were answered, so the request is to blame.
                raise invalid_argument(str(error)) from error
            found |= {f"{name}/{alias}": value for alias, value in answers.items()}
        return [found[fetch] for fetch in fetches]

    def close(self) -> None:
        self._functions = {}


def _checked(specs: Mapping[str, tuple], values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    # Refuses what would be read as something else: another type, rank or number of rows.
    rows = {len(value) for value in values.values() if np.ndim(value)}
    for alias, (dtype, shape) in specs.items():
        value = values[alias]
        fits = value.ndim == len(shape) and all(size in (-1, given) for size, given in zip(shape, value.shape))
        if value.dtype != dtype or not fits or len(rows) != 1:
            wanted, given = (type_name(type_number(one)) for one in (dtype, value.dtype))
            raise invalid_argument(
                f"{alias} is {given} {list(value.shape)}; this model takes {wanted} {list(shape)}, and as many rows of "
                "each input"
            )
    return values


class TfLiteModel:
    """Interpreters of one model; each runs one request at a time.

    Signatures are those of the metadata entry `signature_defs_metadata`, else a serving_default of all inputs and
    outputs, as in the real server.
    """

    def __init__(self, path: str, interpreters: int):
        content = (Path(path) / MODEL_FILE).read_bytes()
        self._idle: queue.SimpleQueue[Interpreter] = queue.SimpleQueue()
        try:
            made = [Interpreter(model_content=content) for _ in range(interpreters)]
        except ValueError as error:
            raise invalid_argument(f"Failed to load {MODEL_FILE} at {path}: {error}") from error
        self._inputs = {detail["name"]: detail for detail in made[0].get_input_details()}
        self._outputs = {detail["name"]: detail for detail in made[0].get_output_details()}
        try:
            stored = stored_signatures(content)
            self.signatures = {name: SignatureDef.FromString(message) for name, message in stored.items()}
        except (ValueError, DecodeError) as error:
            raise invalid_argument(f"Invalid SignatureDefs found in TfLite model: {error}") from error
        for signature in self.signatures.values():
            _correct_names("input", signature.inputs, self._inputs)
            _correct_names("output", signature.outputs, self._outputs)
        if not self.signatures:
            self.signatures = {DEFAULT_SIGNATURE: SignatureDef(method_name=PREDICT)}
            _describe(self.signatures[DEFAULT_SIGNATURE].inputs, self._inputs.values())
            _describe(self.signatures[DEFAULT_SIGNATURE].outputs, self._outputs.values())
        for interpreter in made:
            # Before the first request: one with a bad shape would leave the interpreter unfit for good ones. A model
            # may have no use for the shapes it declares.
            with contextlib.suppress(RuntimeError, ValueError):
                interpreter.allocate_tensors()
            self._idle.put(interpreter)

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None) -> list:
        """Runs like SavedModel.run, but ignores `timeout`: the interpreter cannot be stopped."""
        for name, value in feeds.items():
            self._check_shape(name, np.shape(value))
        interpreter = self._idle.get()
        try:
            for name, value in feeds.items():
                interpreter.resize_tensor_input(self._inputs[name]["index"], list(np.shape(value)))
            interpreter.allocate_tensors()
            for name, value in feeds.items():
                interpreter.set_tensor(self._inputs[name]["index"], value)
            interpreter.invoke()
            return [interpreter.get_tensor(self._outputs[name]["index"]) for name in fetches]
        except (ValueError, RuntimeError) as error:
            # LiteRT does not tell apart what the model and what the request did wrong; the model was loaded.
            raise invalid_argument(str(error)) from error
        finally:
            self._idle.put(interpreter)

    def _check_shape(self, name: str, shape: tuple[int, ...]) -> None:
        # Refuses undeclared shapes, which kernels do not check: they could end the process.
        declared = self._inputs[name]["shape_signature"].tolist()
        limit = max(_MAX_RANK, len(declared))
        fits = len(shape) == len(declared) and all(size in (-1, given) for size, given in zip(declared[1:], shape[1:]))
        if len(shape) > limit or (len(self._inputs) > 1 and not fits):
            raise invalid_argument(f"{name} has the shape {list(shape)}; this model takes {declared}")

    def close(self) -> None:
        self._idle = None


def _correct_names(kind: str, infos: Mapping, tensors: Mapping[str, dict]) -> None:
    # A name may have the suffix ":0", which the file's tensors do not always have.
    for alias, info in infos.items():
        if info.name not in tensors:
            info.name = _plain(info.name)
        if info.name not in tensors:
            raise invalid_argument(f"Signature {kind} {alias} references an unknown tensor: {info.name}")


def _plain(tensor_name: str) -> str:
    return tensor_name.partition(":")[0]


def _describe(infos: Mapping, tensors: Iterable[dict]) -> None:
    for tensor in tensors:
        shape = tensor["shape_signature"].tolist()
        _fill_info(infos[_plain(tensor["name"])], tensor["name"], tensor["dtype"], shape)


def _fill_info(info: TensorInfo, name: str, dtype: type, shape: Iterable[int]) -> None:
    info.name, info.dtype = name, type_number(dtype)
    info.tensor_shape.SetInParent()
    for size in shape:
        info.tensor_shape.dim.add(size=size)

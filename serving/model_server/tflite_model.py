"""TensorFlow Lite versions: VERSION/model.tflite (--prefer_tflite_model)."""

import contextlib
import queue
import struct
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from flatbuffers import flexbuffers
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.lite.python import schema_py_generated

from serving.model_server.prediction import DEFAULT_SIGNATURE, PREDICT
from serving.model_server.status import invalid_argument

_METADATA = b"signature_defs_metadata"
FILE = "model.tflite"
# A tensor with more dimensions than the model declares ends the process inside XNNPACK.
_MAX_RANK = 6


class TfLiteModel:
    """Interpreters of one model; each runs one request at a time.

    Signatures are those of the metadata entry `signature_defs_metadata`, else the model's own, else a serving_default
    of all inputs and outputs.
    """

    def __init__(self, path: str, interpreters: int):
        content = (Path(path) / FILE).read_bytes()
        self._idle: queue.SimpleQueue[tf.lite.Interpreter] = queue.SimpleQueue()
        try:
            with warnings.catch_warnings():
                # tf.lite warns at every use that it will move to another package.
                warnings.simplefilter("ignore")
                made = [tf.lite.Interpreter(model_content=content) for _ in range(interpreters)]
        except ValueError as error:
            raise invalid_argument(f"Failed to load {FILE} at {path}: {error}") from error
        inputs, outputs = made[0].get_input_details(), made[0].get_output_details()
        self._inputs = {detail["name"]: detail for detail in inputs}
        self._outputs = {detail["name"]: detail["index"] for detail in outputs}
        stored = _stored_signature(content)
        self.signatures = _renamed(stored, inputs, outputs) if stored else _signatures(made[0], inputs, outputs)
        for interpreter in made:
            # Before the first request: one with a bad shape would leave the interpreter unfit for good ones. A model
            # may have no use for the shapes it declares.
            with contextlib.suppress(RuntimeError, ValueError):
                interpreter.allocate_tensors()
            self._idle.put(interpreter)

    def run(self, feeds: Mapping[str, np.ndarray], fetches: Sequence[str], timeout: float | None = None) -> list:
        """Runs like SavedModel.run, but ignores `timeout`: TensorFlow Lite cannot be stopped."""
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
            return [interpreter.get_tensor(self._outputs[name]) for name in fetches]
        except (ValueError, RuntimeError) as error:
            # TensorFlow Lite does not tell apart what the model and what the request did wrong; the model was loaded.
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


def _signatures(interpreter: tf.lite.Interpreter, inputs: list, outputs: list) -> dict:
    names = interpreter.get_signature_list()
    if not names:
        by_name = [{d["name"].removesuffix(":0"): d for d in details} for details in (inputs, outputs)]
        return {DEFAULT_SIGNATURE: _signature_def(*by_name)}
    result = {}
    for name in names:
        runner = interpreter.get_signature_runner(name)
        result[name] = _signature_def(runner.get_input_details(), runner.get_output_details())
    return result


def _stored_signature(content: bytes) -> meta_graph_pb2.SignatureDef | None:
    try:
        model = schema_py_generated.Model.GetRootAs(content, 0)
        entries = [model.Metadata(index) for index in range(model.MetadataLength())]
        buffers = [model.Buffers(entry.Buffer()) for entry in entries if entry.Name() == _METADATA]
        if not buffers:
            return None
        stored = [value.AsStringBytes for value in flexbuffers.GetRoot(buffers[0].DataAsNumpy().tobytes()).AsMap.Values]
        signatures = [meta_graph_pb2.SignatureDef.FromString(bytes(text)) for text in stored]
    except (AttributeError, IndexError, TypeError, ValueError, struct.error, DecodeError) as error:
        raise invalid_argument(f"Invalid SignatureDefs found in TfLite model: {error}") from error
    if len(signatures) > 1:
        raise invalid_argument("Multiple SignatureDefs found in TfLite model")
    return signatures[0] if signatures else None


def _renamed(stored: meta_graph_pb2.SignatureDef, inputs: list, outputs: list) -> dict:
    details = []
    for kind, infos, tensors in (("input", stored.inputs, inputs), ("output", stored.outputs, outputs)):
        aliases = {_plain(info.name): alias for alias, info in infos.items()}
        for detail in tensors:
            if _plain(detail["name"]) not in aliases:
                raise invalid_argument(
                    f"Cannot find signature def {kind} name from tflite {kind} tensor {detail['name']}"
                )
        details.append({aliases[_plain(detail["name"])]: detail for detail in tensors})
    return {DEFAULT_SIGNATURE: _signature_def(details[0], details[1], stored.method_name)}


def _plain(tensor_name: str) -> str:
    return tensor_name.partition(":")[0]


def _signature_def(
    inputs: Mapping[str, dict], outputs: Mapping[str, dict], method_name: str = PREDICT
) -> meta_graph_pb2.SignatureDef:
    signature = meta_graph_pb2.SignatureDef(method_name=method_name)
    for infos, details in ((signature.inputs, inputs), (signature.outputs, outputs)):
        for alias, detail in details.items():
            infos[alias].name = detail["name"]
            infos[alias].dtype = tf.as_dtype(detail["dtype"]).as_datatype_enum
            infos[alias].tensor_shape.SetInParent()
            for size in detail["shape_signature"].tolist():
                infos[alias].tensor_shape.dim.add(size=size)
    return signature

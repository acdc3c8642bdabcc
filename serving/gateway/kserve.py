"""KServe's protocol, version 2, with Triton's extension "binary_data": model metadata and tensor inference.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol
"""

import json
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any

import grpc
import numpy as np

from serving.access_log import AccessLog
from serving.client import ServingError, Signature
from serving.client.tasks import DEFAULT
from serving.gateway.errors import Refusal, bad_request, from_server, gone
from serving.gateway.model import ServedModel
from serving.gateway.service import Service
from serving.wire import protos
from serving.wire.request_id import HEADER, request_id
from serving.wire.tensors import DT_STRING, numpy_type
from tfrecords.base.errors import UserError

SERVER = {"name": "albert-tf gateway", "version": "2", "extensions": ["binary_tensor_data"]}
HEADER_LENGTH = "inference-header-content-length"
_TYPES = {
    "BOOL": np.dtype(bool), "BYTES": np.dtype(object), "FP16": np.dtype("float16"), "FP32": np.dtype("float32"),
    "FP64": np.dtype("float64"), **{f"INT{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
# Of gRPC's InferTensorContents: the field that holds values of a type.
_FIELDS = {"BOOL": "bool_contents", "BYTES": "bytes_contents", "FP32": "fp32_contents", "FP64": "fp64_contents"}
_FIELDS |= {f"INT{bits}": "int64_contents" if bits == 64 else "int_contents" for bits in (8, 16, 32, 64)}
_FIELDS |= {f"UINT{bits}": "uint64_contents" if bits == 64 else "uint_contents" for bits in (8, 16, 32, 64)}
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT, 401: grpc.StatusCode.UNAUTHENTICATED, 404: grpc.StatusCode.NOT_FOUND,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED, 503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}  # fmt: skip


def find_model(service: Service, name: str, version: str = "") -> ServedModel:
    """Returns an available model; Refusal 404 if unknown, 503 if unavailable."""
    model = service.models.get(name)
    if model is None:
        raise Refusal(404, f"the model '{name[:100]}' does not exist; there is {', '.join(service.models)}")
    if model.absence is not None or model.version is None:
        raise model.absence or gone()
    if version and version != str(model.version):
        raise Refusal(404, f"the model '{name}' has no version {version[:20]} here; it answers by {model.version}")
    return model


def described(model: ServedModel) -> dict[str, Any]:
    """Returns a model's metadata: its default signature."""
    signature = _signature(model, DEFAULT)

    def specs(tensors: Mapping) -> list[dict]:
        return [
            {"name": name, "datatype": _NAMES.get(_dtype(spec.dtype), "BYTES"), "shape": list(spec.shape or [-1])}
            for name, spec in sorted(tensors.items())
        ]

    versions = {"name": model.name, "versions": [str(model.version)], "platform": "tensorflow_savedmodel"}
    return versions | {"inputs": specs(signature.inputs), "outputs": specs(signature.outputs)}


async def infer(
    service: Service, model: ServedModel, inputs: dict[str, np.ndarray], outputs: tuple[str, ...], parameters: Mapping
) -> dict[str, np.ndarray]:
    """Sends tensors to a model, bypassing the queue for texts, and returns its outputs by name.

    No `outputs` means all. The parameter `signature_name` replaces serving_default.

    Raises:
        Refusal: the inputs do not fit, or the answer has NaN or infinity.
    """
    name = str(_known(parameters, "signature_name", "binary_data_output").get("signature_name", DEFAULT))
    signature = _signature(model, name)
    if inputs.keys() != signature.inputs.keys():
        raise bad_request(f"the inputs are {', '.join(sorted(inputs))}; '{name}' takes {', '.join(signature.inputs)}")
    for key, array in inputs.items():
        wanted = _dtype(signature.inputs[key].dtype)
        if array.dtype != wanted:
            raise bad_request(f"the input '{key}' has datatype {_NAMES[array.dtype]}; it must be {_NAMES.get(wanted)}")
    if missing := [output for output in outputs if output not in signature.outputs]:
        raise bad_request(f"there is no output '{missing[0][:50]}'; '{name}' gives {', '.join(signature.outputs)}")
    found = await model.predict(inputs, outputs, name, service.options.timeout_s)
    for output, array in found.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise Refusal(502, f"the model '{model.name}' gave NaN or infinity ({output})", "not_a_number")
    return found


def _known(parameters: Mapping | None, *names: str) -> Mapping:
    if unknown := (parameters or {}).keys() - set(names):
        raise bad_request(f"the parameter '{min(unknown)[:50]}' is not known; leave it out")
    return parameters or {}


def _signature(model: ServedModel, name: str) -> Signature:
    if name not in model.signatures:
        raise bad_request(
            f"the model '{model.name}' has no signature '{name[:50]}'; it has {', '.join(model.signatures)}"
        )
    return model.signatures[name]


def _dtype(number: int) -> np.dtype | None:
    try:
        return np.dtype(object) if number == DT_STRING else numpy_type(number)
    except UserError:
        return None


def _array(name: str, datatype: str, shape: list[int], values: Any) -> np.ndarray:
    dtype = _TYPES.get(datatype)
    if dtype is None:
        raise bad_request(f"the input '{name}' has the unknown datatype '{str(datatype)[:20]}'")
    try:
        if isinstance(values, bytes):
            flat = _strings(values) if datatype == "BYTES" else np.frombuffer(values, dtype)
        elif datatype == "BYTES":
            flat = np.empty(len(values), object)
            flat[:] = [one.encode() if isinstance(one, str) else one for one in values]
        else:
            flat = np.array(values, dtype)
        return flat.reshape(shape)
    except (TypeError, ValueError, OverflowError, struct.error) as error:
        raise bad_request(f"the input '{name}' is no {datatype} of shape {list(shape)}: {error}"[:300]) from None


def _strings(packed: bytes) -> np.ndarray:
    found, place = [], 0
    while place < len(packed):
        (size,) = struct.unpack_from("<I", packed, place)
        if place + 4 + size > len(packed):
            raise ValueError("a string breaks off")
        found.append(packed[place + 4 : place + 4 + size])
        place += 4 + size
    flat = np.empty(len(found), object)
    flat[:] = found
    return flat


def _packed(array: np.ndarray) -> bytes:
    if array.dtype.kind == "O":
        return b"".join(struct.pack("<I", len(one)) + one for one in array.ravel().tolist())
    return np.ascontiguousarray(array).tobytes()


def _head_of(name: str, array: np.ndarray) -> dict[str, Any]:
    return {"name": name, "datatype": _NAMES[array.dtype], "shape": list(array.shape)}


def _flat(values: Any) -> list:
    if isinstance(values, list) and values and isinstance(values[0], list):
        return [one for row in values for one in _flat(row)]
    return values


async def infer_http(service: Service, model: ServedModel, raw: bytes, header_length: str) -> tuple[bytes, int | None]:
    """Returns the body of an HTTP answer, and its number of JSON bytes (None: all).

    `raw` is JSON, then tensors' bytes. `header_length`, the header HEADER_LENGTH, is the JSON's number of bytes.
    """
    size = int(header_length) if header_length.isdecimal() else len(raw)
    try:
        asked = json.loads(raw[:size])
        inputs, place = {}, size
        for tensor in asked["inputs"]:
            length = _known(tensor.get("parameters"), "binary_data_size").get("binary_data_size")
            values = _flat(tensor["data"]) if length is None else raw[place : place + length]
            place += length or 0
            inputs[tensor["name"]] = _array(tensor["name"], tensor["datatype"], tensor["shape"], values)
        wanted = {one["name"]: _known(one.get("parameters"), "binary_data") for one in asked.get("outputs") or []}
        parameters = asked.get("parameters") or {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise bad_request(f"the body is no request for inference: {error!r}"[:300]) from None
    found = await infer(service, model, inputs, tuple(wanted), parameters)
    outputs, tail = [], b""
    for name, array in found.items():
        output = _head_of(name, array)
        is_binary = wanted.get(name, {}).get("binary_data")
        if parameters.get("binary_data_output", False) if is_binary is None else is_binary:
            packed = _packed(array)
            output["parameters"], tail = {"binary_data_size": len(packed)}, tail + packed
        else:
            flat = array.ravel().tolist()
            output["data"] = [one.decode(errors="replace") for one in flat] if array.dtype.kind == "O" else flat
        outputs.append(output)
    said = {"model_name": model.name, "model_version": str(model.version), "outputs": outputs}
    head = json.dumps(said | ({"id": asked["id"]} if asked.get("id") else {})).encode()
    return head + tail, len(head) if tail else None


class GrpcService(grpc.GenericRpcHandler):
    """The service inference.GRPCInferenceService.

    `check` raises Refusal for call metadata without a required key.
    """

    def __init__(self, service: Callable[[], Service], check: Callable[[str], None], log: AccessLog):
        self._service, self._check, self._log = service, check, log

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        package, _, method = handler_call_details.method.rpartition("/")
        if package != "/inference.GRPCInferenceService" or method not in protos.KSERVE_METHODS:
            return None
        request, answer = protos.KSERVE_METHODS[method]
        handle = getattr(self, f"_{method}")

        async def called(asked, context):
            headers = {key.lower(): value for key, value in context.invocation_metadata()}
            begin, code, refusal = time.perf_counter(), grpc.StatusCode.OK, None
            with request_id(str(headers.get(HEADER, ""))) as own:
                context.set_trailing_metadata(((HEADER, own),))
                try:
                    if not method.startswith("Server"):
                        self._check(headers.get("authorization", ""))
                    answered = answer(**await handle(asked))
                except ServingError as error:
                    refusal = from_server(error)
                except Refusal as error:
                    refusal = error
            if refusal is not None:
                code = _CODES.get(refusal.status, grpc.StatusCode.INTERNAL)
            milliseconds = round((time.perf_counter() - begin) * 1000, 3)
            self._log.write(request_id=own, call=f"gRPC {method}", status=code.name, milliseconds=milliseconds)
            if refusal is None:
                return answered
            await context.abort(code, refusal.message)

        return grpc.unary_unary_rpc_method_handler(called, request.FromString, answer.SerializeToString)

    async def _ServerLive(self, asked) -> dict:
        return {"live": True}

    async def _ServerReady(self, asked) -> dict:
        return {"ready": self._service().live}

    async def _ModelReady(self, asked) -> dict:
        try:
            find_model(self._service(), asked.name, asked.version)
        except Refusal:
            return {"ready": False}
        return {"ready": True}

    async def _ServerMetadata(self, asked) -> dict:
        return SERVER

    async def _ModelMetadata(self, asked) -> dict:
        return described(find_model(self._service(), asked.name, asked.version))

    async def _ModelInfer(self, asked) -> dict:
        service = self._service()
        model = find_model(service, asked.model_name, asked.model_version)
        if asked.raw_input_contents and len(asked.raw_input_contents) != len(asked.inputs):
            raise bad_request(f"{len(asked.raw_input_contents)} raw_input_contents for {len(asked.inputs)} inputs")
        for tensor in (*asked.inputs, *asked.outputs):
            _known(tensor.parameters)
        inputs = {}
        for number, tensor in enumerate(asked.inputs):
            if asked.raw_input_contents:
                values: Any = asked.raw_input_contents[number]
            else:
                values = list(getattr(tensor.contents, _FIELDS.get(tensor.datatype, "bytes_contents")))
            inputs[tensor.name] = _array(tensor.name, tensor.datatype, list(tensor.shape), values)
        parameters = {name: value.string_param or value.bool_param for name, value in asked.parameters.items()}
        wanted = tuple(output.name for output in asked.outputs)
        found = await infer(service, model, inputs, wanted, parameters)
        said = {"model_name": model.name, "model_version": str(model.version), "id": asked.id}
        outputs = [_head_of(name, array) for name, array in found.items()]
        return said | {"outputs": outputs, "raw_output_contents": list(map(_packed, found.values()))}

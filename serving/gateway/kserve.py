"""KServe's protocol, version 2, with Triton's extension "binary_data": model metadata and tensor inference.

https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol
"""

import json
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import grpc
import msgspec
import numpy as np

from serving.access_log import AccessLog
from serving.client import ServingError, Signature
from serving.client.errors import UnreadableAnswer
from serving.client.tasks import DEFAULT
from serving.gateway.bodies import converted, decoded
from serving.gateway.errors import Refusal, bad_request, from_server, gone
from serving.gateway.model import Reading
from serving.gateway.service import Service
from serving.wire import protos
from serving.wire.request_id import HEADER, request_id
from serving.wire.tensors import DT_STRING, MAX_RANK, numpy_type
from tfrecords.base.errors import UserError

SERVER = {"name": "albert-tf gateway", "version": "2", "extensions": ["binary_tensor_data"]}
HEADER_LENGTH = "inference-header-content-length"
_TYPES = {
    "BOOL": np.dtype(bool), "BYTES": np.dtype(object), "FP16": np.dtype("float16"), "FP32": np.dtype("float32"),
    "FP64": np.dtype("float64"), **{f"INT{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
# By the kind of a numpy type, the values it is made of: numpy would also read "1.5" as a number, and 1.5 as 1.
_VALUES = {"O": (str, bytes), "b": (bool,), "i": (int,), "u": (int,), "f": (int, float)}
# Of gRPC's InferTensorContents: the field that holds values of a type.
_FIELDS = {"BOOL": "bool_contents", "BYTES": "bytes_contents", "FP32": "fp32_contents", "FP64": "fp64_contents"}
_FIELDS |= {f"INT{bits}": "int64_contents" if bits == 64 else "int_contents" for bits in (8, 16, 32, 64)}
_FIELDS |= {f"UINT{bits}": "uint64_contents" if bits == 64 else "uint_contents" for bits in (8, 16, 32, 64)}
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT, 401: grpc.StatusCode.UNAUTHENTICATED, 404: grpc.StatusCode.NOT_FOUND,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED, 503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}  # fmt: skip


class _Output(msgspec.Struct):
    name: str
    parameters: dict[str, Any] | None = None


class _Tensor(_Output, kw_only=True):
    datatype: str
    shape: list[int]
    data: list[Any] | None = None


class _Asked(msgspec.Struct):
    """The JSON of a request for inference."""

    inputs: list[_Tensor]
    outputs: list[_Output] | None = None
    parameters: dict[str, Any] | None = None
    id: str | None = None


def find_model(service: Service, name: str, version: str = "") -> Reading:
    """Returns what is known of an available model; Refusal 404 if unknown, 503 if unavailable."""
    served = service.models.get(name)
    if served is None:
        raise Refusal(404, f"the model '{name[:100]}' does not exist; there is {', '.join(service.models)}")
    model = served.reading
    if served.absence is not None or not model.is_whole:
        raise served.absence or gone()
    if version and version != str(model.version):
        raise Refusal(404, f"the model '{name}' has no version {version[:20]} here; it answers by {model.version}")
    return model


def described(model: Reading) -> dict[str, Any]:
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
    service: Service, model: Reading, inputs: dict[str, np.ndarray], outputs: tuple[str, ...], parameters: Mapping
) -> dict[str, np.ndarray]:
    """Sends tensors to a model, past the texts' queue, and returns its outputs by name.

    No `outputs` means all. The parameter `signature_name` replaces serving_default.

    Raises:
        Refusal: the inputs do not fit, or the answer has NaN or infinity.
    """
    name = _known(parameters, signature_name=str, binary_data_output=bool).get("signature_name") or DEFAULT
    signature = _signature(model, name)
    if inputs.keys() != signature.inputs.keys():
        raise bad_request(f"the inputs are {', '.join(sorted(inputs))}; '{name}' takes {', '.join(signature.inputs)}")
    for key, array in inputs.items():
        service.check_count(max((1, *array.shape[:1])))
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


def _known(parameters: Mapping | None, **kinds: type) -> Mapping:
    for name, value in sorted((parameters or {}).items()):
        if name not in kinds:
            raise bad_request(f"the parameter '{name[:50]}' is not known; leave it out")
        if value is not None and type(value) is not kinds[name]:
            raise bad_request(f"the parameter '{name}' is {str(value)[:50]}; it must be of type {kinds[name].__name__}")
    return parameters or {}


def _check_names(kind: str, tensors: Iterable[Any]) -> None:
    for name, count in Counter(one.name for one in tensors).items():
        if count > 1:
            raise bad_request(f"the {kind} '{name[:50]}' is given {count} times; give it once")


def _signature(model: Reading, name: str) -> Signature:
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
        if min(shape, default=0) < 0 or len(shape) > MAX_RANK:
            raise ValueError(f"sizes must be from 0 on, and at most {MAX_RANK}")
        if isinstance(values, bytes):
            flat = _strings(values) if datatype == "BYTES" else np.frombuffer(values, dtype)
        else:
            if strange := {type(one).__name__ for one in values if type(one) not in _VALUES[dtype.kind]}:
                raise TypeError(f"it has values of type {', '.join(sorted(strange))}")
            if datatype == "BYTES":
                flat = np.empty(len(values), object)
                flat[:] = [one.encode() if isinstance(one, str) else one for one in values]
            else:
                # Older numpy takes integers that do not fit.
                if dtype.kind in "iu" and values and not _fit(dtype, min(values), max(values)):
                    raise OverflowError("a value does not fit")
                with np.errstate(over="raise"):
                    flat = np.array(values, dtype)
        return flat.reshape(shape)
    except (TypeError, ValueError, ArithmeticError, struct.error) as error:
        raise bad_request(f"the input '{name}' is no {datatype} of shape {list(shape)}: {error}"[:300]) from None


def _fit(dtype: np.dtype, least: int, most: int) -> bool:
    limits = np.iinfo(dtype)
    return limits.min <= least and most <= limits.max


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


def _flatten(values: list, depth: int, flat: list) -> list:
    for one in values:
        if type(one) is list and depth > 1:
            _flatten(one, depth - 1, flat)
        else:
            flat.append(one)
    return flat


async def infer_http(service: Service, model: Reading, raw: bytes, header_length: str) -> tuple[bytes, int | None]:
    """Returns the body of an HTTP answer, and how many of its bytes are JSON (None: all).

    `raw` is JSON, then tensors' bytes. `header_length`, the header HEADER_LENGTH, is the JSON's number of bytes.
    """
    size = _json_size(raw, header_length)
    asked = converted(decoded(raw[:size]), _Asked)
    _check_names("input", asked.inputs)
    _check_names("output", asked.outputs or ())
    inputs, place = {}, size
    for tensor in asked.inputs:
        length = _known(tensor.parameters, binary_data_size=int).get("binary_data_size")
        if (length is None) == (tensor.data is None):
            raise bad_request(f"the input '{tensor.name}' must have either data or the parameter binary_data_size")
        if length is not None and not 0 <= length <= len(raw) - place:
            raise bad_request(f"the input '{tensor.name}' claims {length} of the {len(raw) - place} bytes left")
        values: Any = raw[place : place + length] if length is not None else None
        if tensor.data is not None:
            values = _flatten(tensor.data, MAX_RANK, [])
        place += length or 0
        inputs[tensor.name] = _array(tensor.name, tensor.datatype, tensor.shape, values)
    if place != len(raw):
        raise bad_request(f"the last {len(raw) - place} bytes of the body belong to no input")
    wanted = {one.name: _known(one.parameters, binary_data=bool) for one in asked.outputs or ()}
    parameters = asked.parameters or {}
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
    head = json.dumps(said | ({"id": asked.id} if asked.id else {})).encode()
    return head + tail, len(head) if tail else None


def _json_size(raw: bytes, header_length: str) -> int:
    if not header_length:
        return len(raw)
    digits = header_length if header_length.isascii() and header_length.isdecimal() else ""
    if not 0 < len(digits) < 20 or int(digits) > len(raw):
        raise bad_request(f"{HEADER_LENGTH} is '{header_length[:20]}'; it must be the JSON's part of {len(raw)} bytes")
    return int(digits)


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
                except (ServingError, UnreadableAnswer) as error:
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
        for kind, tensors in (("input", asked.inputs), ("output", asked.outputs)):
            _check_names(kind, tensors)
            for tensor in tensors:
                _known(tensor.parameters)
        inputs = {}
        for number, tensor in enumerate(asked.inputs):
            if asked.raw_input_contents:
                if tensor.HasField("contents"):
                    raise bad_request(f"the input '{tensor.name}' has raw_input_contents, too; give one")
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

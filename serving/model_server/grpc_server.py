"""The gRPC server: one thread per request; its RPCs, their messages and handlers."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from grpc import StatusCode
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from serving.model_server import telemetry
from serving.model_server.core import ServerCore
from serving.model_server.prediction import CLASSIFY, REGRESS, fill_spec, infer, multi_inference, predict
from serving.model_server.status import StatusError, as_status_error, invalid_argument, not_found, truncated
from serving.model_server.telemetry import RequestLog
from serving.wire.protos import (
    ClassificationRequest,
    ClassificationResponse,
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    GetModelStatusRequest,
    GetModelStatusResponse,
    ModelSpec,
    MultiInferenceRequest,
    PredictRequest,
    PredictResponse,
    RegressionRequest,
    RegressionResponse,
    ReloadConfigRequest,
    ReloadConfigResponse,
    SignatureDefMap,
)
from serving.wire.request_id import HEADER, accepted
from serving.wire.tensors import named_tensors

_LOG = logging.getLogger(__name__)
_UNLIMITED = -1
_NO_DEADLINE = 10 * 365 * 86400.0
# More threads than the limit, so that excess requests are refused at once and do not wait.
_REFUSING_THREADS = 4
# What health checks may ask for, as in the real server: short names, not the services' full ones.
_HEALTH_NAMES = ("", "ModelService", "PredictionService")
_PREDICTION, _MODEL = "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"
_OUTPUTS_FIELD = PredictResponse.DESCRIPTOR.fields_by_name["outputs"].number
_SIGNATURE_DEF = "signature_def"


def model_spec(request: Message) -> ModelSpec:
    """Returns a request's ModelSpec, empty if it has none."""
    if isinstance(request, MultiInferenceRequest):
        return request.tasks[0].model_spec if request.tasks else ModelSpec()
    return getattr(request, "model_spec", None) or ModelSpec()


def _checked_spec(request: Message) -> ModelSpec:
    if not request.HasField("model_spec"):
        raise invalid_argument("Missing ModelSpec")
    return request.model_spec


def _predict(core: ServerCore, request: PredictRequest, timeout: float | None) -> bytes:
    spec = _checked_spec(request)
    response = PredictResponse()
    with core.use(spec) as servable:
        outputs = predict(servable, spec.signature_name, request.inputs, request.output_filter, timeout)
        fill_spec(response.model_spec, servable, spec)
    as_content = core.options.enable_serialization_as_tensor_content
    return named_tensors(_OUTPUTS_FIELD, outputs, as_content) + response.SerializeToString()


def _of_examples(
    response_type: type[Message], method: str, core: ServerCore, request: Message, timeout: float | None
) -> Message:
    spec = _checked_spec(request)
    response = response_type()
    with core.use(spec) as servable:
        response.result.CopyFrom(infer(servable, method, spec.signature_name, request.input, timeout))
        fill_spec(response.model_spec, servable, spec)
    return response


def _multi_inference(core: ServerCore, request: MultiInferenceRequest, timeout: float | None) -> Message:
    with core.use(model_spec(request)) as servable:
        return multi_inference(servable, request, timeout)


def _reload(core: ServerCore, request: ReloadConfigRequest, timeout: float | None) -> Message:
    if request.config.WhichOneof("config") != "model_config_list":
        raise invalid_argument(
            "ServerModelConfig type not supported by HandleReloadConfigRequest. "
            "Only ModelConfigList is currently supported"
        )
    before = {name: telemetry.total(name) for name in request.metric_names}
    response = ReloadConfigResponse()
    core.reload(request.config, timeout)
    response.status.SetInParent()
    for name, value in before.items():
        response.metric.add(name=name, int64_value_increase=telemetry.total(name) - value)
    return response


def get_model_metadata(
    core: ServerCore, request: GetModelMetadataRequest, timeout: float | None = None
) -> GetModelMetadataResponse:
    """Returns the model's signatures."""
    spec = _checked_spec(request)
    if not request.metadata_field:
        raise invalid_argument("GetModelMetadataRequest must specify at least one metadata_field")
    for field in request.metadata_field:
        if field != _SIGNATURE_DEF:
            raise invalid_argument(f"Metadata field {field} is not supported")
    response = GetModelMetadataResponse()
    with core.use(spec) as servable:
        signatures = SignatureDefMap()
        for name, signature in servable.signatures.items():
            signatures.signature_def[name].CopyFrom(signature)
        response.model_spec.name = spec.name
        response.model_spec.version.value = servable.version
    response.metadata[_SIGNATURE_DEF].Pack(signatures)
    return response


def get_model_status(
    core: ServerCore, request: GetModelStatusRequest, timeout: float | None = None
) -> GetModelStatusResponse:
    """Returns the state of the model's versions, or of the requested one; ignores a label."""
    spec = _checked_spec(request)
    states = core.states(spec.name)
    if not states:
        raise not_found(f"Could not find any versions of model {spec.name}")
    if spec.WhichOneof("version_choice") == "version":
        number = spec.version.value
        states = [state for state in states if state[0] == number]
        if not states:
            raise not_found(f"Could not find version {number} of model {spec.name}")
    response = GetModelStatusResponse()
    for number, state, error in states:
        entry = response.model_version_status.add(version=number, state=state)
        entry.status.SetInParent()
        if error is not None:
            entry.status.error_code = error.number
            entry.status.error_message = error.message
    return response


@dataclass(frozen=True)
class _Method:
    """An RPC; `call` takes core, request and timeout in seconds or None, and returns a message or its bytes."""

    service: str
    name: str
    request_type: type[Message]
    call: Callable[[ServerCore, Message, float | None], Message | bytes]
    is_inference: bool = True


_METHODS = (
    _Method(_PREDICTION, "Predict", PredictRequest, _predict),
    _Method(_PREDICTION, "Classify", ClassificationRequest, partial(_of_examples, ClassificationResponse, CLASSIFY)),
    _Method(_PREDICTION, "Regress", RegressionRequest, partial(_of_examples, RegressionResponse, REGRESS)),
    _Method(_PREDICTION, "MultiInference", MultiInferenceRequest, _multi_inference),
    _Method(_PREDICTION, "GetModelMetadata", GetModelMetadataRequest, get_model_metadata, False),
    _Method(_MODEL, "GetModelStatus", GetModelStatusRequest, get_model_status, False),
    _Method(_MODEL, "HandleReloadConfigRequest", ReloadConfigRequest, _reload, False),
)


class _Health(health.HealthServicer):
    # A health service with one entry for all unknown names, since the library keeps every watched name.
    def Watch(self, request, context, send_response_callback=None):
        known = request.service in _HEALTH_NAMES
        return super().Watch(request if known else _UNKNOWN_SERVICE, _Deferring(context), send_response_callback)


# Runs a context's callbacks on separate threads. On gRPC's callback thread, the end of a watch would deadlock: it takes
# a lock that a send holds.
class _Deferring:
    def __init__(self, context: grpc.ServicerContext):
        self._context = context

    def add_callback(self, callback) -> bool:
        return self._context.add_callback(lambda: threading.Thread(target=callback, daemon=True).start())


_UNKNOWN_SERVICE = health_pb2.HealthCheckRequest(service="unknown")


class GrpcServer:
    """A running gRPC server in front of `core`."""

    def __init__(self, core: ServerCore, access_log: RequestLog, credentials: grpc.ServerCredentials | None = None):
        options = core.options
        self._core = core
        self._access_log = access_log
        # The real server spends one of its threads on waiting for requests: with 8 it takes 7 at once.
        self._slots = threading.BoundedSemaphore(max(1, options.grpc_max_threads - 1))
        self._pool = ThreadPoolExecutor(options.grpc_max_threads + _REFUSING_THREADS, "grpc")
        self._server = grpc.server(self._pool, options=_channel_arguments(options.grpc_channel_arguments))
        for method in _METHODS:
            handler = {method.name: grpc.unary_unary_rpc_method_handler(partial(self._handle, method))}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(method.service, handler),))
        self._health = _Health() if options.enable_grpc_healthcheck_service else None
        if self._health:
            for name in _HEALTH_NAMES:
                self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if options.port:
            address = options.address("grpc")
            host = f"[{address}]" if ":" in address else address
            self._listen(f"{host}:{options.port}", credentials)
        if options.grpc_socket_path:
            self._listen(f"unix:{options.grpc_socket_path}", credentials)
        self._server.start()

    def stop(self, grace: float | None = None) -> None:
        if self._health:
            self._health.enter_graceful_shutdown()
        self._server.stop(grace=grace if grace is not None else 365 * 86400).wait()
        self._pool.shutdown(wait=True)

    def _listen(self, address: str, credentials: grpc.ServerCredentials | None) -> None:
        try:
            if credentials is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, credentials)
        except RuntimeError:
            bound = 0
        if not bound:
            raise StatusError(StatusCode.UNAVAILABLE, f"Cannot listen on {address}: it is in use or may not be opened")

    def _handle(self, method: _Method, payload: bytes, context: grpc.ServicerContext) -> bytes:
        if not self._slots.acquire(blocking=False):
            context.abort(StatusCode.RESOURCE_EXHAUSTED, "Server Threadpool Exhausted")
        try:
            answer, error = self._answer(method, payload, context)
        finally:
            self._slots.release()
        if error is not None:
            context.abort(error.code, truncated(error.message))
        return answer

    def _answer(
        self, method: _Method, payload: bytes, context: grpc.ServicerContext
    ) -> tuple[bytes, StatusError | None]:
        begin = time.perf_counter()
        spec, answer, error = ModelSpec(), b"", None
        try:
            request = method.request_type.FromString(payload)
            spec = model_spec(request)
            left = context.time_remaining()
            left = None if left is None or left > _NO_DEADLINE else left
            found = method.call(self._core, request, left)
            answer = found if isinstance(found, bytes) else found.SerializeToString()
        except DecodeError:
            error = StatusError(StatusCode.INTERNAL, "Failed to parse the request message")
        except Exception as failure:
            error = as_status_error(failure)
            if error.code == StatusCode.INTERNAL:
                _LOG.exception("%s failed", method.name)
        status = error.code.name if error else "OK"
        seconds, api = time.perf_counter() - begin, method.name if method.is_inference else None
        own = accepted(next((str(one.value) for one in context.invocation_metadata() if one.key == HEADER), None))
        context.set_trailing_metadata(((HEADER, own),))
        self._access_log.add("GRPC", api, method.name, spec, status, seconds, own)
        return answer, error


def _channel_arguments(text: str) -> list[tuple[str, Any]]:
    arguments: dict[str, Any] = {
        "grpc.max_receive_message_length": _UNLIMITED,
        "grpc.max_send_message_length": _UNLIMITED,
        # Two servers on one port would each get some of the requests; an error at start is better.
        "grpc.so_reuseport": 0,
    }
    for pair in filter(None, text.split(",")):
        key, _, value = pair.partition("=")
        try:
            arguments[key] = int(value)
        except ValueError:
            arguments[key] = value
    return list(arguments.items())

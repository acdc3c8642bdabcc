"""The gRPC server: one thread per request."""

import functools
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from serving.model_server import telemetry
from serving.model_server.core import ServerCore
from serving.model_server.grpc.services import METHODS, Method, model_spec
from serving.model_server.status import StatusError, as_status_error, truncated
from serving.model_server.telemetry import RequestLog
from serving.wire.protos import ModelSpec
from serving.wire.request_id import HEADER, accepted

_LOG = logging.getLogger(__name__)
_UNLIMITED = -1
_NO_DEADLINE = 10 * 365 * 86400.0
# More threads than the limit, so that excess requests are refused at once and do not wait.
_REFUSING_THREADS = 4
# What health checks may ask for, as in the real server: short names, not the services' full ones.
_HEALTH_NAMES = ("", "ModelService", "PredictionService")


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
        for service in sorted({method.service for method in METHODS}):
            handlers = {
                method.name: grpc.unary_unary_rpc_method_handler(functools.partial(self._handle, method))
                for method in METHODS
                if method.service == service
            }
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
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

    def _handle(self, method: Method, payload: bytes, context: grpc.ServicerContext) -> bytes:
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
        self, method: Method, payload: bytes, context: grpc.ServicerContext
    ) -> tuple[bytes, StatusError | None]:
        begin = time.perf_counter()
        spec, answer, error = ModelSpec(), b"", None
        try:
            request = method.request_type.FromString(payload)
            spec = model_spec(request)
            answer = method.call(self._core, request, _timeout(context))
        except DecodeError:
            error = StatusError(StatusCode.INTERNAL, "Failed to parse the request message")
        except Exception as failure:
            error = as_status_error(failure)
            if error.code == StatusCode.INTERNAL:
                _LOG.exception("%s failed", method.name)
        status = error.code.name if error else "OK"
        seconds = time.perf_counter() - begin
        if method.is_inference:
            telemetry.record_request(spec.name, method.name, "GRPC", status, seconds)
        own = accepted(next((str(one.value) for one in context.invocation_metadata() if one.key == HEADER), None))
        context.set_trailing_metadata(((HEADER, own),))
        self._access_log.write("GRPC", method.name, spec, status, seconds, own)
        return answer, error


def _timeout(context: grpc.ServicerContext) -> float | None:
    remaining = context.time_remaining()
    return None if remaining is None or remaining > _NO_DEADLINE else remaining


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

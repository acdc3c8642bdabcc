"""The REST API: maps URLs to the calls of gRPC; HTTP by uvicorn on its own thread."""

import asyncio
import contextlib
import functools
import logging
import math
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from grpc import StatusCode

from serving.http_protocol import HttpServer, Refusal, read_body
from serving.model_server import json_request, json_response, telemetry
from serving.model_server.core import ServerCore
from serving.model_server.grpc_server import get_model_metadata, get_model_status
from serving.model_server.prediction import DEFAULT_SIGNATURE, infer, predict
from serving.model_server.status import StatusError, as_status_error, invalid_argument
from serving.model_server.telemetry import RequestLog
from serving.wire.protos import GetModelMetadataRequest, GetModelStatusRequest, ModelSpec
from serving.wire.request_id import HEADER, accepted
from tfrecords.base.machine.processes import without_collections

_LOG = logging.getLogger(__name__)
_SELECTION = r"(?:(?:/versions/0*(\d+))|(?:/labels/([^/:]+)))?"
_API_PATH = re.compile(r"/v1/.*", re.IGNORECASE | re.DOTALL)
_PREDICTION_PATH = re.compile(rf"/v1/models/([^/:]+){_SELECTION}:(classify|regress|predict)", re.IGNORECASE | re.ASCII)
_STATUS_PATH = re.compile(rf"/v1/models(?:/([^/:]+))?{_SELECTION}(?:/(metadata))?", re.IGNORECASE | re.ASCII)
_INT64_MAX = 2**63 - 1
_INT64_DIGITS = 19
# Bodies from this size on are read one at a time: each takes many times its size in memory while it is.
_LARGE_BODY_BYTES = 2**20
_RESULTS = {"classify": json_response.classification, "regress": json_response.regression}
HTTP_STATUS = {
    StatusCode.OK: 200,
    StatusCode.CANCELLED: 499,
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.OUT_OF_RANGE: 400,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.NOT_FOUND: 404,
    StatusCode.ALREADY_EXISTS: 409,
    StatusCode.ABORTED: 409,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.DEADLINE_EXCEEDED: 504,
}


@dataclass
class Response:
    """An HTTP response."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})


class RestApi:
    """Answers REST requests; thread-safe."""

    def __init__(self, core: ServerCore, access_log: RequestLog, metrics_path: str | None = None):
        self._core = core
        self._access_log = access_log
        self._metrics_path = metrics_path
        self._large_body = threading.Lock()

    @property
    def max_body_bytes(self) -> int:
        return self._core.options.rest_api_max_body_bytes

    def answer(
        self, verb: str, path: str, headers: dict[str, str], body: bytes, begin: float | None = None
    ) -> Response:
        """Answers one request.

        Header names are in lower case. The time limit starts at `begin` (time.monotonic), by default now.
        """
        # As GET, without a body, which the protocol leaves out.
        verb = "GET" if verb == "HEAD" else verb
        if path.partition("?")[0] == self._metrics_path:
            return Response(200, telemetry.exposition().encode(), {"Content-Type": "text/plain"})
        if not _API_PATH.fullmatch(path) or "?" in path:
            return Response(404, headers={})
        cors = self._core.options.rest_api_enable_cors_support
        if verb == "OPTIONS" and "origin" in headers:
            answer = Response(200, headers={})
        else:
            answer = self._api_answer(verb, path, headers, body, time.monotonic() if begin is None else begin)
        if cors:
            answer.headers |= {
                "Access-Control-Allow-Origin": "*",
                "Access-Control-Allow-Methods": "POST, GET",
                "Access-Control-Allow-Headers": "Content-Type",
            }
        return answer

    def _api_answer(self, verb: str, path: str, headers: dict[str, str], body: bytes, begin: float) -> Response:
        limit = self._core.options.rest_api_timeout_in_ms / 1000
        # As in the C++ server's RunOptions, 0 is no limit.
        deadline = begin + limit if limit > 0 else math.inf
        code, spec, method, api = StatusCode.OK, ModelSpec(), "", None
        try:
            match = (_PREDICTION_PATH if verb == "POST" else _STATUS_PATH).fullmatch(path)
            if match is None or verb not in ("GET", "POST"):
                raise invalid_argument(f"Malformed request: {verb} {path}")
            # Python refuses to read thousands of digits.
            if match[2] and (len(match[2]) > _INT64_DIGITS or int(match[2]) > _INT64_MAX):
                return Response(400)
            spec, method = _model_spec(match), match[4] or ""
            # Like the real server, this also counts status and metadata requests, without an API name.
            api = method if verb == "POST" else ""
            answer = Response(200, self._dispatch(verb, path, spec, method, body, deadline))
        except Exception as failure:
            error = as_status_error(failure)
            if error.code == StatusCode.INTERNAL:
                _LOG.exception("%s %s failed", verb, path)
            code = error.code
            answer = Response(HTTP_STATUS.get(code, 500), json_response.error(error.message))
        seconds, own = time.monotonic() - begin, accepted(headers.get(HEADER))
        answer.headers[HEADER] = own
        self._access_log.add("REST", api, f"{verb} {path}", spec, code.name, seconds, own)
        return answer

    def _dispatch(self, verb: str, path: str, spec: ModelSpec, method: str, body: bytes, deadline: float) -> bytes:
        if verb == "POST":
            if method == "predict":
                return self._predict(spec, body, deadline)
            if method in _RESULTS:
                return self._examples(spec, method, body, deadline)
            # The real server matches ":Predict" and then finds no such method.
            raise invalid_argument(f"Malformed request: {verb} {path}")
        if not spec.name:
            raise invalid_argument("Missing model name in request.")
        if method == "metadata":
            request = GetModelMetadataRequest(model_spec=spec, metadata_field=["signature_def"])
            return json_response.metadata(get_model_metadata(self._core, request))
        request = GetModelStatusRequest(model_spec=spec)
        return json_response.status(get_model_status(self._core, request))

    def _predict(self, spec: ModelSpec, body: bytes, deadline: float) -> bytes:
        with contextlib.ExitStack() as stack:
            with self._turn(len(body), deadline):
                values = json_request.parse_object(body, deadline)
                name = json_request.signature_name(values) or DEFAULT_SIGNATURE
                servable = stack.enter_context(self._core.use(spec))
                if name not in servable.signatures:
                    raise invalid_argument(f'Serving signature name: "{name}" not found in signature def')
                # A protobuf map cannot even be asked for a name that is no UTF-8.
                infos = dict(servable.signatures[name].inputs)
                if not infos:
                    raise invalid_argument(f"Failed to get input map for signature: {name}")
                inputs, row_format = json_request.predict_inputs(values, infos)
            outputs = predict(servable, name, inputs, timeout=_left(deadline))
        with self._turn(sum(np.size(value) for value in outputs.values()), deadline):
            return json_response.predictions(outputs, row_format)

    def _examples(self, spec: ModelSpec, method: str, body: bytes, deadline: float) -> bytes:
        with self._turn(len(body), deadline):
            values = json_request.parse_object(body, deadline)
            name = json_request.signature_name(values)
            examples = json_request.examples_input(values)
        with self._core.use(spec) as servable:
            result = infer(servable, f"tensorflow/serving/{method}", name, examples, _left(deadline))
        return _RESULTS[method](result)

    @contextlib.contextmanager
    def _turn(self, size: int, deadline: float) -> Iterator[None]:
        """Lets one request at a time convert a large body or response."""
        if size < _LARGE_BODY_BYTES:
            yield
            return
        wait = min(max(0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
        if not self._large_body.acquire(timeout=wait):
            raise StatusError(StatusCode.DEADLINE_EXCEEDED, "other large bodies took the time of the request")
        # A million small lists would set the cyclic garbage collector off again and again: five times the time, all of
        # it with Python's lock held.
        try:
            with without_collections():
                yield
        finally:
            self._large_body.release()


def _left(deadline: float) -> float | None:
    if deadline == math.inf:
        return None
    json_request.check_time(deadline)
    return max(0.0, deadline - time.monotonic())


def _model_spec(match: re.Match) -> ModelSpec:
    spec = ModelSpec(name=urllib.parse.unquote(match[1] or ""))
    if match[2]:
        spec.version.value = int(match[2])
    if match[3]:
        spec.version_label = urllib.parse.unquote(match[3])
    return spec


class RestServer(HttpServer):
    """An HTTP server for `api`: opens its port at once, answers after start()."""

    def __init__(self, api: RestApi, address: str, port: int, threads: int):
        self._api = api
        # Large bodies wait for one another in RestApi; small ones must not wait with them.
        self._pools = ThreadPoolExecutor(threads, "rest"), ThreadPoolExecutor(threads, "rest-large")
        self._receiving: set[asyncio.Task] = set()
        try:
            super().__init__(self._application, address, port)
        except OSError as error:
            raise StatusError(StatusCode.UNAVAILABLE, f"Cannot listen on {address}:{port}: {error.strerror}") from error

    def refuse_new(self, drain_s: float | None = None) -> None:
        super().refuse_new(drain_s)
        for task in list(self._receiving):
            with contextlib.suppress(RuntimeError):  # The loop has ended.
                task.get_loop().call_soon_threadsafe(task.cancel)

    def stop(self, drain_s: float | None = None) -> None:
        super().stop(drain_s)
        for pool in self._pools:
            pool.shutdown(wait=drain_s is None, cancel_futures=True)

    async def _application(self, scope, receive, send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except ConnectionError:
            return
        fields = {**answer.headers, "Content-Length": str(len(answer.body))}
        headers = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope, receive) -> Response:
        if self._server.should_exit:
            return _closing(503, "the server is stopping")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        task, limit = asyncio.current_task(), self._api.max_body_bytes
        self._receiving.add(task)
        try:
            body = await read_body(receive, int(headers.get("content-length", 0)), limit)
        except Refusal as refusal:
            return _closing(refusal.status, f"{refusal.message} (--rest_api_max_body_bytes)")
        except TimeoutError:
            return Response(408, headers={"Connection": "close"})
        except asyncio.CancelledError:
            return _closing(503, "the server is stopping")
        finally:
            self._receiving.discard(task)
        path = scope["raw_path"].decode("latin-1") + ("?" if scope["query_string"] else "")
        pool = self._pools[len(body) >= _LARGE_BODY_BYTES]
        call = functools.partial(self._api.answer, scope["method"], path, headers, body, time.monotonic())
        return await asyncio.get_running_loop().run_in_executor(pool, call)


def _closing(status: int, message: str) -> Response:
    headers = {"Content-Type": "application/json", "Connection": "close"}
    return Response(status, json_response.error(message), headers)

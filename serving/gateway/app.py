"""The gateway as an ASGI application, and as a server on a port."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import replace

import msgspec
import numpy as np
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from serving.access_log import AccessLog
from serving.client import Connection, ServingError
from serving.client.errors import UnreadableAnswer
from serving.gateway.errors import from_server
from serving.gateway.keys import Keys
from serving.gateway.pages import PAGES, Page, Reply, encode
from serving.gateway.routes.bodies import decoded, read_values
from serving.gateway.routes.table import ROUTES, Route
from serving.gateway.service import Answer, Call, Metrics, Service
from serving.gateway.settings import GatewayOptions, listed
from serving.http_protocol import HttpServer, Refusal, Room, Share, inflated, read_body
from serving.wire.request_id import HEADER, current, request_id
from tfrecords.base.errors import UserError

_LOG = logging.getLogger(__name__)
_ID_HEADER = HEADER.encode()
# No browser takes an answer for another kind of file, or shows it in a page of others.
_SECURITY = (
    (b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"), (b"referrer-policy", b"no-referrer")
)  # fmt: skip


class Gateway:
    """The gateway as an ASGI application; `keys`: None if no key is needed."""

    def __init__(
        self,
        connection: Connection,
        models: Sequence[str],
        keys: Keys | None = None,
        options: GatewayOptions = GatewayOptions(),  # noqa: B008 (frozen)
    ):
        options = replace(options, root_path=options.root_path.rstrip("/"))
        self.options, self.keys, self.metrics = options, keys, Metrics()
        self.log = AccessLog(options.access_log)
        self.room = Room(options.max_held_bytes)
        self.service: Service | None = None
        self._models = connection, models
        routes, pages = ({one.path: one for one in table} for table in (ROUTES, PAGES))
        endpoints = [
            StarletteRoute(path, _Endpoint(self, path, routes.get(path), pages.get(path))) for path in routes | pages
        ]
        application = Starlette(routes=endpoints, lifespan=self._lifespan, exception_handlers={404: _not_found})
        application.router.redirect_slashes = False
        if origins := listed(options.cors_origins):
            application.add_middleware(
                CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["*"],
                expose_headers=["Retry-After", "Server-Timing", "X-Truncated-Inputs", "X-Request-Id"],
            )  # fmt: skip
        self._application = application

    async def asgi(self, scope, receive, send) -> None:
        """Handles a request; removes a proxy's prefix and a trailing slash from its path."""
        if scope["type"] == "http":
            scope = scope | {"path": scope["path"].removeprefix(self.options.root_path).rstrip("/") or "/"}
        await self._application(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app):
        self.service = Service(*self._models, self.options, self.metrics)
        try:
            yield
        finally:
            await self.service.close()
            self.log.close()


class _Endpoint:
    """Answers all requests of one path."""

    def __init__(self, gateway: Gateway, path: str, route: Route | None, page: Page | None):
        self._gateway, self._path, self._route, self._page = gateway, path, route, page
        self._methods = ("GET", "HEAD") * (page is not None) + ("POST",) * (route is not None)
        self._family = route.family if route else "openai" if path.startswith("/v1") else "tei"
        self._is_open = page is not None and page.is_open

    async def __call__(self, scope, receive, send) -> None:
        begin = time.perf_counter()
        headers = {name.decode("latin-1"): value.decode(errors="surrogateescape") for name, value in scope["headers"]}
        with request_id(headers.get(HEADER)) as own, self._gateway.room.share() as share:
            call = Call(self._gateway.service, share)
            try:
                reply = await self._answer(headers, scope, receive, call)
            except ConnectionError:
                return
            except Exception as error:
                reply = self._refused(error, scope["method"], call)
            await self._reply(own, scope["method"], reply, time.perf_counter() - begin, call, send)

    async def _answer(self, headers: dict[str, str], scope, receive, call: Call) -> Reply:
        keys, method = self._gateway.keys, scope["method"]
        if keys is not None and not self._is_open and not keys.open_to(headers.get("authorization", "")):
            raise Refusal(401, "the Authorization header carries no key that is known here", "invalid_api_key")
        if method not in self._methods:
            raise Refusal(405, f"{self._path} takes {' and '.join(self._methods)}", "method_not_allowed")
        if method != "POST":
            return self._page.draw(call.service, **scope["path_params"])
        body = read_values(decoded(await self._body(headers, receive, call)), self._route.body)
        answer = await _unless_gone(call.answered(self._route.handler, body), receive)
        return Reply(_encoded(answer, call.share))

    async def _body(self, headers: dict[str, str], receive, call: Call) -> bytes:
        announced, limit = headers.get("content-length", "0"), self._gateway.options.max_body_bytes
        raw = await read_body(receive, int(announced) if announced.isdecimal() else 0, limit, call.share)
        call.body = inflated(raw, headers.get("content-encoding", ""), limit)
        call.share.take(len(call.body) - call.share.size)
        return call.body

    def _refused(self, error: Exception, method: str, call: Call) -> Reply:
        refusal = self._refusal(error)
        call.code = refusal.code
        headers = {}
        if refusal.status == 401:
            # A browser that opens a page asks its user for a name, which does not matter, and the key.
            is_for_people = method == "GET" and self._page is not None and self._page.is_for_people
            headers[b"www-authenticate"] = b'Basic realm="gateway"' if is_for_people else b"Bearer"
        elif refusal.status == 405:
            headers[b"allow"] = ", ".join(self._methods).encode()
        elif refusal.retry_after is not None:
            headers[b"retry-after"] = b"%d" % refusal.retry_after
        return Reply(_error(self._family, refusal), status=refusal.status, headers=tuple(headers.items()))

    def _refusal(self, error: Exception) -> Refusal:
        match error:
            case Refusal():
                return error
            case ServingError() | UnreadableAnswer():
                return from_server(error)
            case TimeoutError():
                return Refusal(504, "the request took longer than the time limit", "timeout")
        _LOG.error("%s, request %s", self._path, current(), exc_info=error)
        return Refusal(500, "the gateway failed; its log says how", "internal")

    async def _reply(self, own: str, verb: str, reply: Reply, seconds: float, call: Call, send) -> None:
        headers = [(b"content-type", reply.kind), (b"content-length", b"%d" % len(reply.body)), *reply.headers]
        headers += [(_ID_HEADER, own.encode()), *_SECURITY]
        if call.model_ns:
            durations = call.queue_ns / 1e6, call.model_ns / 1e6, seconds * 1e3
            headers.append((b"server-timing", b"queue;dur=%.3f, model;dur=%.3f, total;dur=%.3f" % durations))
        if call.truncated is not None:
            headers.append((b"x-truncated-inputs", b"%d" % call.truncated))
        metrics = self._gateway.metrics
        metrics.requests.labels(self._path, reply.status).inc()
        metrics.seconds.labels(self._path).observe(seconds)
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body, "more_body": True})
        # Returns when the client has read nearly all of a long answer, which takes memory until then.
        await send({"type": "http.response.body"})
        options = self._gateway.options
        if not options.access_log or (self._is_open and verb == "GET" and reply.status == 200):
            return  # Probes ask every few seconds.
        body = {"body": call.body.decode(errors="replace")} if options.log_bodies else {}
        self._gateway.log.write(
            request_id=own,
            call=f"{verb} {self._path}",
            status=reply.status,
            error=call.code or None,
            milliseconds=round(seconds * 1000, 3),
            queue_milliseconds=round(call.queue_ns / 1e6, 3),
            model_milliseconds=round(call.model_ns / 1e6, 3),
            truncated=call.truncated,
            **body,
        )


def _encoded(answer: Answer, share: Share) -> bytes:
    """Encodes an answer; its arrays and iterators are counted and become Python objects one row at a time."""

    def encode_rows(value: np.ndarray | Iterable) -> msgspec.Raw:
        if isinstance(value, np.ndarray):
            row = encoder.encode(value.tolist())
            share.take_answer(len(row))
            return msgspec.Raw(row)
        before, text = share.answer, bytearray(b"[")
        for item in value:
            text += encoder.encode(item) + b","
            # Without what arrays and iterators within the item have taken.
            share.take_answer(len(text) - (share.answer - before))
        text[max(len(text) - 1, 1) :] = b"]"
        return msgspec.Raw(text)

    encoder = msgspec.json.Encoder(enc_hook=encode_rows)
    body = encoder.encode(answer)
    # The model's arrays have gone.
    share.take_answer(len(body) - share.answer)
    return body


async def _unless_gone(handled: Awaitable[Answer], receive) -> Answer:
    task, left = asyncio.current_task(), asyncio.ensure_future(receive())

    def stop(_) -> None:
        task.cancel()

    left.add_done_callback(stop)
    try:
        return await handled
    except asyncio.CancelledError:
        if not left.done() or left.cancelled():
            raise
        task.uncancel()
        raise ConnectionError("the client left before the answer") from None
    finally:
        left.remove_done_callback(stop)
        left.cancel()


def _error(family: str, refusal: Refusal) -> bytes:
    if family == "cohere":
        return encode({"message": refusal.message})
    if family == "tei":
        return encode({"error": refusal.message, "error_type": refusal.code})
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    # Cohere's clients share some paths, and read the message outside.
    error = {"message": refusal.message, "type": kind, "param": None, "code": refusal.code}
    return encode({"error": error, "message": refusal.message})


async def _not_found(request, error) -> Response:
    refusal = Refusal(404, "there is no such route; /openapi.json lists them", "not_found")
    path = request.scope["path"]
    body = _error("openai" if path.startswith(("/v1/", "/v2/")) else "tei", refusal)
    return Response(body, 404, media_type="application/json")


class GatewayServer(HttpServer):
    """A gateway that opens its port at once (0: a free port) and answers after `run` or `start`.

    Raises UserError if the port cannot be opened.
    """

    def __init__(self, gateway: Gateway, address: str, port: int):
        self.gateway = gateway
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        try:
            super().__init__(gateway.asgi, address, port, "on", gateway.options.drain_s, answers_half_closed=False)
        except OSError as error:
            raise UserError(f"cannot listen on {address}:{port}: {error.strerror}; choose another --port") from error

    def run(self) -> None:
        """Answers until SIGTERM or SIGINT; a second signal ends it at once. SIGHUP, as of logrotate, does nothing."""
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        # uvicorn raises a signal again when it is done; after SIGTERM that is a good end.
        signal.signal(signal.SIGTERM, lambda *_: None)
        self._serve()

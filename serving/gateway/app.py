import asyncio
import contextlib
import logging
import re
import time
import zlib
from collections.abc import Awaitable, Iterable

import msgspec
import numpy as np
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from serving.access_log import AccessLog
from serving.client import ServingError
from serving.client.errors import UnreadableAnswer
from serving.gateway import tracing
from serving.gateway.errors import RETRY_S, Refusal, bad_request, from_server
from serving.gateway.metrics import Metrics
from serving.gateway.pages import PAGES, Page, Reply, encode
from serving.gateway.routes.bodies import read_object
from serving.gateway.routes.table import ROUTES, Route
from serving.gateway.service import Answer, Call, GatewayOptions, Service
from serving.http_protocol import Inflating, LongAnswer, LongBody, NoRoom, Room, Share, UnknownCoding, read_body
from serving.wire.request_id import HEADER, current, request_id

_LOG = logging.getLogger(__name__)


class Gateway:
    """The gateway as an ASGI application."""

    def __init__(self, options: GatewayOptions):
        self.options, self.metrics = options, Metrics()
        self.log = AccessLog(options.access_log)
        self.room = Room(options.max_held_bytes)
        self.service: Service | None = None
        # For a path of both kinds: POST is the route's, all else the page's.
        posts = [StarletteRoute(route.path, _Post(self, route), methods=_OF_BOTH.get(route.path)) for route in ROUTES]
        gets = [StarletteRoute(page.path, _Get(self, page)) for page in PAGES]
        application = Starlette(routes=[*posts, *gets], lifespan=self._lifespan, exception_handlers={404: _not_found})
        application.router.redirect_slashes = False
        if options.cors_origins:
            application.add_middleware(
                CORSMiddleware, allow_origins=options.cors_origins, allow_methods=["GET", "POST"], allow_headers=["*"],
                expose_headers=["Retry-After", "Server-Timing", "X-Truncated-Inputs", "X-Request-Id"],
            )  # fmt: skip
        self._application = application

    async def asgi(self, scope, receive, send) -> None:
        """Handles a request; removes a proxy's prefix and a trailing slash from its path."""
        if scope["type"] == "http":
            path = scope["path"].removeprefix(self.options.root_path) if self.options.root_path else scope["path"]
            scope = scope | {"path": path.rstrip("/") or "/", "slash": path.endswith("/")}
        await self._application(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app):
        self.service = Service(self.options, self.metrics)
        try:
            yield
        finally:
            await self.service.close()
            self.log.close()


class _Endpoint:
    def __init__(self, gateway: Gateway, path: str, methods: tuple[str, ...], family: str, is_open: bool):
        self._gateway, self._path, self._methods, self._family, self._is_open = gateway, path, methods, family, is_open
        self._is_page = "GET" in methods and path in _FOR_PEOPLE

    async def __call__(self, scope, receive, send) -> None:
        begin = time.perf_counter()
        call, given = Call(), dict(scope["headers"]).get(_ID_HEADER, b"")
        with request_id(given.decode("latin-1")) as own, self._gateway.room.share() as call.share:
            try:
                reply = await self._checked(scope, receive, call)
            except ConnectionError:
                return
            except Refusal as refusal:
                call.code = refusal.code
                reply = Reply(_error(self._family, refusal), status=refusal.status, headers=self._headers(refusal))
            await self._reply(own, scope["method"], reply, time.perf_counter() - begin, call, send)

    async def _reply(self, own: str, verb: str, reply: Reply, seconds: float, call: Call, send) -> None:
        headers = [(b"content-type", reply.kind), (b"content-length", b"%d" % len(reply.body)), *reply.headers]
        headers += [(_ID_HEADER, own.encode()), *_SECURITY]
        if call.model_ns:
            headers.append((b"server-timing", _timing(call, seconds)))
        if call.truncated is not None:
            headers.append((b"x-truncated-inputs", b"%d" % call.truncated))
        metrics = self._gateway.metrics
        metrics.requests.labels(self._path, reply.status).inc()
        metrics.seconds.labels(self._path).observe(seconds)
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body, "more_body": True})
        # Returns when the client has read nearly all of a long answer, which takes memory until then.
        await send({"type": "http.response.body"})
        self._log(own, verb, reply.status, seconds, call)

    def _log(self, own: str, verb: str, status: int, seconds: float, call: Call) -> None:
        options = self._gateway.options
        if not options.access_log or (verb == "GET" and status == 200 and self._is_open):
            return  # Probes ask every few seconds.
        body = {"body": call.body.decode(errors="replace")} if options.log_bodies else {}
        self._gateway.log.write(
            request_id=own,
            call=f"{verb} {self._path}",
            status=status,
            error=call.code or None,
            milliseconds=round(seconds * 1000, 3),
            queue_milliseconds=round(call.queue_ns / 1e6, 3),
            model_milliseconds=round(call.model_ns / 1e6, 3),
            truncated=call.truncated,
            **body,
        )

    def _headers(self, refusal: Refusal) -> tuple[tuple[bytes, bytes], ...]:
        if refusal.retry_after is not None:
            return ((b"retry-after", b"%d" % refusal.retry_after),)
        # A browser that opens a page asks its user for a name, which does not matter, and the key.
        scheme = b'Basic realm="gateway"' if self._is_page else b"Bearer"
        named = {401: (b"www-authenticate", scheme), 405: (b"allow", ", ".join(self._methods).encode())}
        return (named[refusal.status],) if refusal.status in named else ()

    async def _checked(self, scope, receive, call: Call) -> Reply:
        headers = {name.decode("latin-1"): value.decode(errors="surrogateescape") for name, value in scope["headers"]}
        keys = self._gateway.options.keys
        if keys is not None and not self._is_open and not keys.open_to(headers.get("authorization", "")):
            raise Refusal(401, "the Authorization header carries no key that is known here", "invalid_api_key")
        if scope["method"] not in self._methods:
            raise Refusal(405, f"{self._path} takes {' and '.join(self._methods)}", "method_not_allowed")
        try:
            return await self._answer(headers, scope, receive, call)
        except (ServingError, UnreadableAnswer) as error:
            raise from_server(error) from None
        except LongBody:
            limit = self._gateway.options.max_body_bytes
            raise Refusal(413, f"the body is over the {limit} bytes of this gateway", "too_large") from None
        except LongAnswer:
            limit = self._gateway.options.max_held_bytes
            message = f"the answer takes more than the {limit} bytes of this gateway; send fewer or shorter texts"
            raise Refusal(413, message, "too_large") from None
        except NoRoom:
            message = "the bodies and answers of other requests fill the memory they may take"
            raise Refusal(429, message, "overloaded", RETRY_S) from None
        except TimeoutError:
            raise Refusal(504, "the request took longer than the time limit", "timeout") from None
        except (Refusal, ConnectionError):
            raise
        except Exception:
            _LOG.exception("%s, request %s", self._path, current())
            raise Refusal(500, "the gateway failed; its log says how", "internal") from None

    async def _answer(self, headers: dict[str, str], scope, receive, call: Call) -> Reply:
        raise NotImplementedError

    async def _body_of(self, headers: dict[str, str], receive, call: Call) -> bytes:
        announced = headers.get("content-length", "0")
        size = int(announced) if announced.isdecimal() else 0
        limit = self._gateway.options.max_body_bytes
        call.body = _inflated(await read_body(receive, size, limit, call.share), headers, limit)
        call.share.take(len(call.body) - call.share.size)
        return call.body


_ID_HEADER = HEADER.encode()
# No browser takes an answer for another kind of file, or shows it in a page of others.
_SECURITY = (
    (b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"), (b"referrer-policy", b"no-referrer")
)  # fmt: skip
# Pages that people open in a browser.
_FOR_PEOPLE = ("/", "/docs")
# The path that has a page and takes bodies.
_OF_BOTH = {"/": ["POST"]}


class _Post(_Endpoint):
    def __init__(self, gateway: Gateway, route: Route):
        super().__init__(gateway, route.path, ("POST",), route.family, is_open=False)
        self._handler, self._body = route.handler, route.body

    async def _answer(self, headers: dict[str, str], scope, receive, call: Call) -> Reply:
        body = read_object(await self._body_of(headers, receive, call), self._body)
        with tracing.request_span(self._path, headers) as call.trace:
            handled = self._gateway.service.answered(self._handler, body, call)
            return Reply(_encoded(await _unless_gone(handled, receive), call.share))


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


def _inflated(raw: bytes, headers: dict[str, str], limit: int) -> bytes:
    try:
        body = Inflating(raw, headers.get("content-encoding", "")).read(limit + 1)
    except UnknownCoding as error:
        message = f"Content-Encoding '{str(error)[:50]}' is not known; send gzip, deflate, or the body as it is"
        raise Refusal(415, message, "unsupported_media_type") from None
    except zlib.error as error:
        raise bad_request(f"the compressed body cannot be read: {error}") from None
    if len(body) > limit:
        raise LongBody
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


class _Get(_Endpoint):
    def __init__(self, gateway: Gateway, page: Page):
        family = "openai" if page.path.startswith("/v1") else "tei"
        super().__init__(gateway, page.path, ("GET", "HEAD", *_OF_BOTH.get(page.path, ())), family, page.is_open)
        self._draw = page.draw

    async def _answer(self, headers: dict[str, str], scope, receive, call: Call) -> Reply:
        if self._path != "/docs":
            return self._draw(self._gateway.service, **scope["path_params"])
        host = headers.get("host") or "HOST:PORT"
        reply = self._draw(self._gateway.service, f"{scope['scheme']}://{host}")
        if scope["slash"]:
            # Its links are relative to its address.
            reply = reply._replace(body=re.sub(b'href="(?!data:)', b'href="../', reply.body))
        return reply


def _timing(call: Call, seconds: float) -> bytes:
    return b"queue;dur=%.3f, model;dur=%.3f, total;dur=%.3f" % (call.queue_ns / 1e6, call.model_ns / 1e6, seconds * 1e3)


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
    refusal = Refusal(404, "there is no such route; /docs lists them", "not_found")
    path = request.scope["path"]
    body = _error("openai" if path.startswith(("/v1/", "/v2/")) else "tei", refusal)
    return Response(body, 404, media_type="application/json")

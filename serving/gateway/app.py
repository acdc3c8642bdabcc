"""The ASGI application: keys, bodies, errors and counters around the routes."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.responses import RedirectResponse
from starlette.routing import Route as StarletteRoute

from serving.client import ServingError
from serving.gateway import openapi, tracing
from serving.gateway.errors import Refusal, bad_request, from_server
from serving.gateway.metrics import Metrics
from serving.gateway.routes import ROUTES, Answer, Route
from serving.gateway.service import Options, Service
from serving.http_protocol import LongBody, read_body

_LOG = logging.getLogger(__name__)
_JSON = b"application/json"
_encode = msgspec.json.Encoder().encode


class Gateway:
    """The application `asgi`, and the service behind it, which lives as long as the application runs."""

    def __init__(self, options: Options):
        self.options, self.metrics = options, Metrics()
        self.service: Service | None = None
        posts = [StarletteRoute(route.path, _Post(self, route)) for route in ROUTES]
        gets = [StarletteRoute(path, _Get(self, path, *page)) for path, page in _PAGES.items()]
        root = StarletteRoute("/", lambda request: RedirectResponse("docs"))
        self.asgi = Starlette(
            routes=[*posts, *gets, root], lifespan=self._lifespan, exception_handlers={404: _not_found}
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, app):
        self.service = Service(self.options, self.metrics)
        try:
            yield
        finally:
            await self.service.close()


class _Endpoint:
    """What all routes do around their answer."""

    def __init__(self, gateway: Gateway, path: str, method: str, family: str, is_open: bool):
        self._gateway, self._path, self._method, self._family, self._is_open = gateway, path, method, family, is_open

    async def __call__(self, scope, receive, send) -> None:
        begin = time.perf_counter()
        retry_after = None
        try:
            status, kind, body = await self._checked(scope, receive)
        except ConnectionError:
            return
        except Refusal as refusal:
            status, kind, body = refusal.status, _JSON, _error(self._family, refusal)
            retry_after = refusal.retry_after
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body))]
        if retry_after is not None:
            headers.append((b"retry-after", b"%d" % retry_after))
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if status == 405:
            headers.append((b"allow", self._method.encode()))
        metrics = self._gateway.metrics
        metrics.requests.labels(self._path, status).inc()
        metrics.seconds.labels(self._path).observe(time.perf_counter() - begin)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _checked(self, scope, receive) -> tuple[int, bytes, bytes]:
        headers = {name.decode("latin-1"): value.decode(errors="surrogateescape") for name, value in scope["headers"]}
        keys = self._gateway.options.keys
        if keys is not None and not self._is_open and not keys.open_to(headers.get("authorization", "")):
            raise Refusal(401, "the Authorization header carries no key that is known here", "invalid_api_key")
        if scope["method"] != self._method:
            raise Refusal(405, f"{self._path} takes {self._method}", "method_not_allowed")
        try:
            return await self._answer(headers, scope, receive)
        except ServingError as error:
            raise from_server(error) from None
        except LongBody:
            limit = self._gateway.options.max_body_bytes
            raise Refusal(413, f"the body is over the {limit} bytes of this gateway", "too_large") from None
        except TimeoutError:
            raise Refusal(504, "the request took longer than the time limit", "timeout") from None
        except (Refusal, ConnectionError):
            raise
        except Exception:
            _LOG.exception("%s", self._path)
            raise Refusal(500, "the gateway failed; its log says how", "internal") from None

    async def _answer(self, headers: dict[str, str], scope, receive) -> tuple[int, bytes, bytes]:
        raise NotImplementedError


class _Post(_Endpoint):
    def __init__(self, gateway: Gateway, route: Route):
        super().__init__(gateway, route.path, "POST", route.family, is_open=False)
        self._handler = route.handler
        self._decode = msgspec.json.Decoder(route.body).decode

    async def _answer(self, headers: dict[str, str], scope, receive) -> tuple[int, bytes, bytes]:
        announced = headers.get("content-length", "0")
        size = int(announced) if announced.isdecimal() else 0
        raw = await read_body(receive, size, self._gateway.options.max_body_bytes)
        try:
            body = self._decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise bad_request(f"the body is not what this route takes: {error}"[:500]) from None
        except RecursionError:
            raise bad_request("the body is nested too deeply") from None
        with tracing.request_span(self._path, headers) as context:
            handled = self._handler(self._gateway.service, body, context)
            return 200, _JSON, _encode(await _unless_gone(handled, receive))


async def _unless_gone(handled: Awaitable[Answer], receive) -> Answer:
    """Awaits the answer; raises ConnectionError, and stops work on it, when the client leaves before."""
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
    def __init__(self, gateway: Gateway, path: str, is_open: bool, page: Callable[[Gateway], tuple]):
        super().__init__(gateway, path, "GET", "openai" if path.startswith("/v1") else "tei", is_open)
        self._page = page

    async def _answer(self, headers: dict[str, str], scope, receive) -> tuple[int, bytes, bytes]:
        return self._page(self._gateway, **scope["path_params"])


def _error(family: str, refusal: Refusal) -> bytes:
    """The error as clients of each family read it."""
    if family == "cohere":
        return _encode({"message": refusal.message})
    if family == "tei":
        return _encode({"error": refusal.message, "error_type": refusal.code})
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    return _encode({"error": {"message": refusal.message, "type": kind, "param": None, "code": refusal.code}})


async def _not_found(request, error) -> Any:
    from starlette.responses import Response

    refusal = Refusal(404, "there is no such route; /docs lists them", "not_found")
    return Response(_error("openai", refusal), 404, media_type="application/json")


def _health(gateway: Gateway) -> tuple:
    gone = [name for name, model in gateway.service.models.items() if not model.live]
    if gone:
        raise Refusal(503, f"not there: {', '.join(gone)}", "unavailable", 1)
    return 200, _JSON, b'{"status":"ok"}'


def _models(gateway: Gateway) -> tuple:
    data = [_model_card(gateway, name) for name in gateway.service.models]
    return 200, _JSON, _encode({"object": "list", "data": data})


def _model(gateway: Gateway, name: str) -> tuple:
    if name not in gateway.service.models:
        raise Refusal(404, f"the model '{name[:100]}' does not exist", "model_not_found")
    return 200, _JSON, _encode(_model_card(gateway, name))


def _model_card(gateway: Gateway, name: str) -> dict:
    return {"id": name, "object": "model", "created": gateway.service.started, "owned_by": "tensorflow-serving"}


def _info(gateway: Gateway) -> tuple:
    options, service = gateway.options, gateway.service
    models = [
        {
            "id": model.name,
            "version": model.version,
            "live": model.live,
            "can": list(model.tasks),
            "routes": [route.path for route in ROUTES if route.task in model.tasks],
            "max_input_length": model.estimate.longest,
            "labels": model.labels,
        }
        for model in service.models.values()
    ]
    first = models[0]
    return 200, _JSON, _encode({
        "model_id": first["id"],
        "max_input_length": first["max_input_length"],
        "max_batch_tokens": options.limits.max_batch_tokens,
        "max_batch_requests": options.limits.max_batch_rows,
        "max_client_batch_size": options.max_inputs,
        "auto_truncate": True,
        "models": models,
    })  # fmt: skip


def _docs(gateway: Gateway) -> tuple:
    models = {name: tuple(model.tasks) for name, model in gateway.service.models.items()}
    return 200, b"text/html; charset=utf-8", openapi.page(models).encode()


# Path, whether it is open to all, and what it shows.
_PAGES = {
    "/health": (True, _health),
    "/v1/models": (False, _models),
    "/v1/models/{name:path}": (False, _model),
    "/info": (False, _info),
    "/metrics": (False, lambda gateway: (200, b"text/plain; version=0.0.4; charset=utf-8", gateway.metrics.page())),
    "/openapi.json": (True, lambda gateway: (200, _JSON, _encode(openapi.document()))),
    "/docs": (True, _docs),
}

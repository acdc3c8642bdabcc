"""GET pages: models, health, API description, and the page to try models on."""

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from serving.gateway.errors import NOT_READY, RETRY_S, Refusal
from serving.gateway.model import ServedModel
from serving.gateway.routes.table import ROUTES, Route
from serving.gateway.service import Service

STATUSES = {
    400: "The request is wrong; the message says how to fix it.",
    401: "No key, or one that does not open.",
    404: "There is no such model, here or at the model server.",
    413: "The body, its answer, or a text that must not be cut, is too long.",
    415: "The body's Content-Encoding is not known; gzip and deflate are.",
    429: "Too much waits; Retry-After says how long to.",
    502: "The model server failed, or gave NaN, infinity or an output that cannot be read.",
    503: "The gateway is not ready yet, or the model server does not answer; Retry-After says when to ask again.",
    504: "The time limit has passed.",
}
encode = msgspec.json.Encoder().encode


def _read(name: str) -> str:
    return (Path(__file__).with_name("page") / name).read_text("utf-8")


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_STYLE, _SCRIPT = _read("style.css"), _read("script.js")
# Placeholders of the style and the script in the page.
_PLAYGROUND = _read("page.html").replace("{style}", _STYLE).replace("{script}", _SCRIPT).encode()
# A browser runs this style and this script alone, and holds the page to its own address.
_NOTHING_ELSE = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_OF_PLAYGROUND = f"{_NOTHING_ELSE}; style-src {_source(_STYLE)}; script-src {_source(_SCRIPT)}; connect-src 'self'"
# An answer to each route's example, with short vectors.
_ANSWERS = json.loads(_read("answers.json"))


class Reply(NamedTuple):
    """An HTTP response."""

    body: bytes
    kind: bytes = b"application/json"
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


def _page(text: bytes, policy: str) -> Reply:
    return Reply(text, b"text/html; charset=utf-8", headers=((b"content-security-policy", policy.encode()),))


@dataclass(frozen=True)
class Page:
    """A page for GET; names in braces in `path` become arguments of `draw`.

    `is_open`: needs no key. `is_for_people`: is opened in a browser.
    """

    path: str
    draw: Callable[..., Reply]
    summary: str
    is_open: bool = False
    is_for_people: bool = False


_OK = Reply(b'{"status":"ok"}')


def _health(service: Service, some_suffice: bool = False, **_: str) -> Reply:
    absences = {name: model.absence for name, model in service.models.items() if model.absence}
    # A missing model must not block requests to the others.
    is_read = all(absence.code != NOT_READY for absence in absences.values())
    if not absences or (some_suffice and is_read and len(absences) < len(service.models)):
        return _OK
    lines = [f"{name}: {absence.message}" for name, absence in absences.items()]
    raise Refusal(503, "; ".join(lines), "unavailable", RETRY_S)


def _models(service: Service, **_: str) -> Reply:
    # As OpenAI's clients read it, and Cohere's.
    cards = [_model_card(service, name) for name in service.models]
    return Reply(encode({"object": "list", "data": cards, "models": cards}))


def _model(service: Service, name: str, **_: str) -> Reply:
    if name not in service.models:
        raise Refusal(404, f"the model '{name[:100]}' does not exist", "model_not_found")
    return Reply(encode(_model_card(service, name)))


def _model_card(service: Service, name: str) -> dict:
    model = service.models[name].reading
    of_openai = {"id": name, "object": "model", "created": service.started, "owned_by": "tensorflow-serving"}
    endpoints = [task for task in ("embed", "rerank") if task in model.tasks]
    return of_openai | {"name": name, "endpoints": endpoints, "context_length": model.longest}


def _info(service: Service, **_: str) -> Reply:
    models = [_described(model) for model in service.models.values()]
    first, options = models[0], service.options
    return Reply(encode({
        "model_id": first["id"],
        "max_input_length": first["max_input_length"],
        "max_batch_tokens": options.max_batch_tokens,
        "max_batch_requests": options.max_batch_rows,
        "max_client_batch_size": options.max_inputs,
        "auto_truncate": True,
        "models": models,
    }))  # fmt: skip


def _described(served: ServedModel) -> dict[str, Any]:
    model = served.reading
    return {
        "id": model.name,
        "version": model.version,
        "live": served.live,
        "can": list(model.tasks),
        "routes": [route.path for route in ROUTES if route.is_for(model.tasks)],
        "inputs": {name: task.inputs for name, task in model.tasks.items()},
        "max_input_length": model.longest,
        "labels": model.labels,
        "mask": model.mask,
    }


def _document(service: Service, **_: str) -> Reply:
    """Returns all routes' OpenAPI 3.1 document."""
    bodies = list(dict.fromkeys(route.body for route in ROUTES))
    _, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {route.path: {"post": _operation(route)} for route in ROUTES}
    for page in PAGES:
        said = {"summary": page.summary, "responses": {"200": {"description": page.summary}}}
        paths.setdefault(page.path, {})["get"] = said
    return Reply(encode({
        "openapi": "3.1.0",
        "info": {"title": "Gateway to TensorFlow Serving", "version": "1"},
        "servers": [{"url": service.options.root_path or "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }))  # fmt: skip


def _operation(route: Route) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
    content = {"application/json": {"schema": schema, "example": route.example}}
    answer = {"application/json": {"example": _ANSWERS[route.path]}}
    answers = {str(status): {"description": text} for status, text in STATUSES.items()}
    return {
        "summary": route.summary,
        "requestBody": {"required": True, "content": content},
        "responses": {"200": {"description": "The answer.", "content": answer}} | answers,
    }


PAGES = (
    Page(
        "/", lambda *_, **__: _page(_PLAYGROUND, _OF_PLAYGROUND),
        "A page to try the models on.", is_for_people=True,
    ),
    Page("/v1/models", _models, "The models, as OpenAI's and Cohere's clients list them."),
    Page("/v1/models/{name:path}", _model, "One of them."),
    Page("/info", _info, "What the gateway and its models are."),
    Page("/health", _health, "200 while every model answers, else 503 with the reasons; needs no key.", is_open=True),
    Page(
        "/health/ready", partial(_health, some_suffice=True),
        "200 while a model answers and none is still being read, else 503 with the reasons; needs no key.",
        is_open=True,
    ),
    Page(
        "/health/live", lambda *_, **__: _OK, "200 as long as the gateway itself runs; needs no key.", is_open=True,
    ),
    Page(
        "/metrics", lambda service, **_: Reply(service.metrics.page(), b"text/plain; version=0.0.4; charset=utf-8"),
        "Counters for Prometheus.",
    ),
    Page("/openapi.json", _document, "The routes with their types."),
)  # fmt: skip

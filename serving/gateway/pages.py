"""GET pages: models, health, API description, playground."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from serving.gateway import openapi
from serving.gateway.errors import NOT_READY, RETRY_S, Refusal
from serving.gateway.model import ServedModel
from serving.gateway.playground import PLAYGROUND, POLICY
from serving.gateway.routes.table import ROUTES
from serving.gateway.service import Service

_JSON = b"application/json"
_HTML = b"text/html; charset=utf-8"
# /docs runs no script.
_DOCS_POLICY = b"default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
encode = msgspec.json.Encoder().encode


class Reply(NamedTuple):
    """An HTTP response."""

    body: bytes
    kind: bytes = _JSON
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True)
class Page:
    """A page for GET; names in braces in `path` become arguments of `draw`."""

    path: str
    is_open: bool
    draw: Callable[..., Reply]


def _playground(service: Service) -> Reply:
    return Reply(PLAYGROUND, _HTML, headers=((b"content-security-policy", POLICY),))


_OK = Reply(b'{"status":"ok"}')


def _health(service: Service) -> Reply:
    return _ok_unless(_absences(service))


def _ready(service: Service) -> Reply:
    absences = _absences(service)
    # A missing model must not block requests to the others.
    is_read = all(absence.code != NOT_READY for absence in absences.values())
    return _OK if is_read and len(absences) < len(service.models) else _ok_unless(absences)


def _absences(service: Service) -> dict[str, Refusal]:
    return {name: model.absence for name, model in service.models.items() if model.absence}


def _ok_unless(absences: dict[str, Refusal]) -> Reply:
    if absences:
        lines = [f"{name}: {absence.message}" for name, absence in absences.items()]
        raise Refusal(503, "; ".join(lines), "unavailable", RETRY_S)
    return _OK


def _models(service: Service) -> Reply:
    # As OpenAI's clients read it, and Cohere's.
    cards = [_model_card(service, name) for name in service.models]
    return Reply(encode({"object": "list", "data": cards, "models": cards}))


def _model(service: Service, name: str) -> Reply:
    if name not in service.models:
        raise Refusal(404, f"the model '{name[:100]}' does not exist", "model_not_found")
    return Reply(encode(_model_card(service, name)))


def _model_card(service: Service, name: str) -> dict:
    model = service.models[name].reading
    of_openai = {"id": name, "object": "model", "created": service.started, "owned_by": "tensorflow-serving"}
    endpoints = [task for task in ("embed", "rerank") if task in model.tasks]
    return of_openai | {"name": name, "endpoints": endpoints, "context_length": model.estimate.longest}


def _info(service: Service) -> Reply:
    models = [_described(model) for model in service.models.values()]
    first, options = models[0], service.options
    return Reply(encode({
        "model_id": first["id"],
        "max_input_length": first["max_input_length"],
        "max_batch_tokens": options.limits.max_batch_tokens,
        "max_batch_requests": options.limits.max_batch_rows,
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
        "max_input_length": model.estimate.longest,
        "labels": model.labels,
        "mask": model.mask,
    }


def _docs(service: Service, address: str) -> Reply:
    models = {name: tuple(model.reading.tasks) for name, model in service.models.items()}
    page = openapi.page(models, address + service.options.root_path, service.options.keys is not None)
    # The address is what the client calls this host, in any bytes.
    return Reply(page.encode(errors="replace"), _HTML, headers=((b"content-security-policy", _DOCS_POLICY),))


def _metrics(service: Service) -> Reply:
    return Reply(service.metrics.page(), b"text/plain; version=0.0.4; charset=utf-8")


PAGES = (
    Page("/", False, _playground),
    Page("/health", True, _health),
    Page("/health/ready", True, _ready),
    Page("/health/live", True, lambda service: _OK),
    Page("/v1/models", False, _models),
    Page("/v1/models/{name:path}", False, _model),
    Page("/info", False, _info),
    Page("/metrics", False, _metrics),
    Page("/openapi.json", False, lambda service: Reply(encode(openapi.document(service.options.root_path)))),
    Page("/docs", False, _docs),
)

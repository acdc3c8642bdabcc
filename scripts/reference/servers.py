"""Pages of the servers: the gateway's routes, errors of all APIs, and metrics, from the tables that the servers use."""

import typing
from typing import Any

import msgspec

from scripts.reference.markdown import code, table
from serving.client.errors import HINTS
from serving.gateway import bodies
from serving.gateway.metrics import Metrics
from serving.gateway.openapi import GETS, STATUSES
from serving.gateway.routes import ROUTES, Route
from serving.model_server import telemetry
from serving.model_server.rest import HTTP_STATUS

_FAMILIES = {"openai": "OpenAI", "cohere": "Cohere", "tei": "text-embeddings-inference"}
_ROUTES = """# Routes of the gateway

`/openapi.json` and `/docs` of a running gateway describe the routes of its models, with all types. A route
answers if a model can do the task. Every body may have the field `model`; without it the first model
that can answers. Fields that start with `*` must be given. An unknown field is refused by name, unless its value
is null or empty.

These fields of other clients are accepted and change no answer: {ignored}.
"""
_ERRORS = """# Errors

## Commands

| status | meaning |
|---|---|
| 0 | done |
| 1 | an error, with one line `error: ...` on stderr that names the value, the file and the fix |
| 2 | an unknown flag, or a value of the wrong type |
| 130, 143 | ended by Ctrl-C or SIGTERM; training saved a checkpoint first |
| 255 | the model server could not start: `Failed to start server. Error: ...` |
"""


def pages() -> dict[str, str]:
    """Returns the pages by their paths below docs/reference."""
    return {"gateway_routes.md": _routes(), "errors.md": _errors(), "metrics.md": _metrics()}


def _routes() -> str:
    head = _ROUTES.strip().format(ignored=", ".join(map(code, sorted(bodies.WITHOUT_EFFECT))))
    asked = table(
        ("route", "clients", "task", "fields", ""),
        [
            [code(f"POST {one.path}"), _FAMILIES[one.family], one.task, _fields(one), one.summary] for one in ROUTES
        ],
    )  # fmt: skip
    gets = table(("route", ""), [[code(f"GET {path}"), text] for path, text in GETS.items()])
    types = table(("field", "type"), [[code(name), kind] for name, kind in sorted(_types().items()) if len(kind) < 80])
    return "\n\n".join([head, asked, "## Other routes", gets, "## Types of the fields", types])


def _fields(route: Route) -> str:
    found = [one for one in msgspec.structs.fields(route.body) if one.name != "model"]
    return ", ".join(f"{'*' * one.required}{code(one.encode_name)}" for one in found)


def _types() -> dict[str, str]:
    """Returns the types of the fields of all bodies by name; of a name with several, all of them."""
    found: dict[str, set[str]] = {}
    for route in ROUTES:
        hints = typing.get_type_hints(route.body)
        for name in (one.name for one in msgspec.structs.fields(route.body) if one.name != "model"):
            found.setdefault(name, set()).add(_type_name(hints[name]))
    return {name: " or ".join(sorted(kinds)) for name, kinds in found.items()}


def _type_name(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(code(value) for value in typing.get_args(hint))
    if typing.get_args(hint) and getattr(hint, "__origin__", None) in (list, dict):
        return f"list of {_type_name(typing.get_args(hint)[0])}" if hint.__origin__ is list else "object"
    inner = [one for one in typing.get_args(hint) if one is not type(None)]
    if inner:
        return " or ".join(dict.fromkeys(_type_name(one) for one in inner if not isinstance(one, msgspec.Meta)))
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", dict: "object", Any: "any"}
    return names.get(hint, getattr(hint, "__name__", str(hint)))


def _errors() -> str:
    statuses = sorted(HTTP_STATUS.items(), key=lambda pair: pair[0].value)
    rest = table(("gRPC status", "HTTP status"), [[code(status.name), str(number)] for status, number in statuses])
    gateway = table(("HTTP status", "meaning"), [[str(status), text] for status, text in STATUSES.items()])
    hints = table(
        ("status", "message contains", "what to change"), [[" ".join(text.split()) for text in one] for one in HINTS]
    )
    return "\n\n".join(
        [
            _ERRORS.strip(),
            "## Model server\n\nThe gRPC status and message are those of TensorFlow Serving. Over REST the body is "
            '`{"error": MESSAGE}`. A status that is not listed is 500. A body that is too large is 413, and an unknown '
            "`Content-Encoding` is 415.",
            rest,
            "## Gateway\n\nThe body has the form that clients of the route read. 429 and 503 have `Retry-After`.",
            gateway,
            "## Python client\n\nA failed call raises `ServingError` with `code` (`grpc.StatusCode`), `details` (the "
            "server's message) and `hint` (what to change):",
            hints,
        ]
    )


def _metrics() -> str:
    metrics = Metrics()
    metrics.watch_queue(float, float, float)
    own = [
        [code(family.name + "_total" * (family.type == "counter")), family.type,
         _labels(metrics.registry._names_to_collectors[family.name]), family.documentation]
        for family in metrics.registry.collect()
    ]  # fmt: skip
    server = [[code(path.replace("/", ":")), one._type, _labels(one)] for path, one in telemetry.METRICS.items()]
    return "\n\n".join(
        [
            "# Metrics",
            "Both servers answer in Prometheus' text format.",
            "## Gateway: `/metrics`",
            table(("metric", "type", "labels", ""), own),
            "## Model server: `/monitoring/prometheus/metrics`",
            "The page is on the REST port of a server with `--monitoring_config_file`. Names are those of TensorFlow "
            "Serving; times are in microseconds. Metrics with `albert_tf` are of the embedded server alone: tokens of "
            "texts, tokens that were cut off, and rows that were cut. Status requests over REST are counted with an "
            'empty label `API`; leave them out with `API!=""`.',
            table(("metric", "type", "labels"), server),
        ]
    )


def _labels(metric: Any) -> str:
    return ", ".join(map(code, metric._labelnames))

"""The API description: an OpenAPI document, and a self-contained page."""

import html
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from serving.gateway.routes import ROUTES, Route

STATUSES = {
    400: "The request is wrong; the message says how to fix it.",
    401: "No key, or one that does not open.",
    404: "There is no such model, here or at the model server.",
    413: "The body, or a text that must not be cut, is too long.",
    415: "The body's Content-Encoding is not known; gzip and deflate are.",
    429: "Too much waits; Retry-After says how long to.",
    502: "The model server failed, or gave NaN or infinity.",
    503: "The gateway is not ready yet, or the model server does not answer; Retry-After says when to ask again.",
    504: "The time limit has passed.",
}
GETS = {
    "/": "A page to try the models on; needs no key, its questions do.",
    "/v1/models": "The models, as OpenAI's and Cohere's clients list them.",
    "/info": "What the gateway and its models are.",
    "/v2": "KServe's protocol, version 2: health and metadata below it, and POST /v2/models/NAME/infer.",
    "/health": "200 while every model answers, else 503 with the reasons; needs no key.",
    "/health/ready": "200 while a model answers and none is still being read, else 503 with the reasons; needs no key.",
    "/health/live": "200 as long as the gateway itself runs; needs no key.",
    "/metrics": "Counters for Prometheus.",
    "/openapi.json": "This description; needs no key.",
    "/docs": "This description as a page; needs no key.",
}


def document(root_path: str = "") -> dict[str, Any]:
    """Returns the OpenAPI 3.1 description of all routes, with `root_path` before their paths."""
    bodies = list(dict.fromkeys(route.body for route in ROUTES))
    _, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {route.path: {"post": _operation(route)} for route in ROUTES}
    for path, summary in GETS.items():
        paths.setdefault(path, {})["get"] = {"summary": summary, "responses": {"200": {"description": summary}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Gateway to TensorFlow Serving", "version": "1"},
        "servers": [{"url": root_path or "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{route.body.__name__}"}
    content = {"application/json": {"schema": schema, "example": route.example}}
    answers = {str(status): {"description": text} for status, text in STATUSES.items()}
    return {
        "summary": route.summary,
        "requestBody": {"required": True, "content": content},
        "responses": {"200": {"description": "The answer."}} | answers,
    }


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Gateway to TensorFlow Serving</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }}
pre {{ overflow-x: auto; padding: .6rem; border: 1px solid #8888; border-radius: .3rem }}
td, th {{ text-align: left; vertical-align: top; padding: .1rem .8rem .1rem 0 }}
</style>
<h1>Gateway to TensorFlow Serving</h1>
<p>Models: {models}. Every field: <a href="openapi.json">openapi.json</a>.</p>
{routes}
<h2>Also</h2><table>{gets}</table>
<h2>What else may be answered</h2><table>{statuses}</table>
</html>
"""


def page(models: Mapping[str, tuple[str, ...]]) -> str:
    """Returns the HTML page; `models`: names and tasks."""
    said = (f"<b>{html.escape(name)}</b> ({', '.join(tasks) or 'not there'})" for name, tasks in models.items())
    gets = "".join(f"<tr><td><code>GET {path}</code><td>{html.escape(text)}" for path, text in GETS.items())
    statuses = "".join(f"<tr><td>{status}<td>{html.escape(text)}" for status, text in STATUSES.items())
    routes = "".join(_section(route, models) for route in ROUTES)
    return _PAGE.format(models="; ".join(said), routes=routes, gets=gets, statuses=statuses)


def _section(route: Route, models: Mapping[str, tuple[str, ...]]) -> str:
    answering = [name for name, tasks in models.items() if route.is_for(tasks)]
    fields = ", ".join(f"<code>{one.name}</code>" for one in msgspec.structs.fields(route.body))
    by = f"answered by {html.escape(', '.join(answering))}" if answering else "no model here can"
    command = f"curl -d '{json.dumps(route.example)}' http://HOST:PORT{route.path}"
    return (
        f"<h2><code>POST {route.path}</code></h2><p>{html.escape(route.summary)} ({by})<br>Fields: {fields}</p>"
        f"<pre>{html.escape(command)}</pre>"
    )

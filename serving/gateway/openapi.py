import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from serving.gateway.routes.table import ROUTES, Route, first_path

_FOLDER = Path(__file__).with_name("page")
_STYLE = (_FOLDER / "style.css").read_text("utf-8")
# An answer to each route's example, with short vectors.
ANSWERS = json.loads((_FOLDER / "answers.json").read_text("utf-8"))
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
GETS = {
    "/": "A page to try the models on; needs no key, its questions do.",
    "/v1/models": "The models, as OpenAI's and Cohere's clients list them.",
    "/info": "What the gateway and its models are.",
    "/health": "200 while every model answers, else 503 with the reasons; needs no key.",
    "/health/ready": "200 while a model answers and none is still being read, else 503 with the reasons; needs no key.",
    "/health/live": "200 as long as the gateway itself runs; needs no key.",
    "/metrics": "Counters for Prometheus.",
    "/openapi.json": "This description; needs no key.",
    "/docs": "This description as a page; needs no key.",
}


def document(root_path: str = "") -> dict[str, Any]:
    """Returns all routes' OpenAPI 3.1 document."""
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
    answer = {"application/json": {"example": ANSWERS[route.path]}}
    answers = {str(status): {"description": text} for status, text in STATUSES.items()}
    return {
        "summary": route.summary,
        "requestBody": {"required": True, "content": content},
        "responses": {"200": {"description": "The answer.", "content": answer}} | answers,
    }


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>API of the gateway</title>
<link rel="icon" href="data:,">
<style>{style}</style>
<header><h1>API</h1><p>{models}</p><a href=".">Try it</a> <a href="openapi.json">openapi.json</a></header>
<main class="docs">
<p>The address is <code>{address}</code>. {key}Without the field <code>model</code>, the first model that can
answers. Vectors in the example answers are shortened to three numbers.</p>
{routes}
<section><h2>Other routes</h2><table>{gets}</table></section>
<section><h2>Errors</h2><table>{statuses}</table></section>
</main>
</html>
"""
_KEY = "Every request needs one of the gateway's keys in the header <code>Authorization</code>. "


def page(models: Mapping[str, tuple[str, ...]], address: str, needs_key: bool) -> str:
    """Returns an HTML page of the routes that the models answer."""
    names = (f"<b>{html.escape(name)}</b> ({', '.join(tasks) or 'not there yet'})" for name, tasks in models.items())
    rows = "<tr><td><code>{}</code><td>{}".format
    address = html.escape(address)
    key = " \\\n  -H 'Authorization: Bearer YOUR_KEY'" * needs_key
    return _PAGE.format(
        style=_STYLE,
        models="; ".join(names),
        address=address,
        key=_KEY * needs_key,
        routes="".join(_section(route, models, address, key) for route in ROUTES) or "<p>No model is there yet.</p>",
        gets="".join(rows(f"GET {path}", html.escape(text)) for path, text in GETS.items()),
        statuses="".join(rows(status, html.escape(text)) for status, text in STATUSES.items()),
    )


def _section(route: Route, models: Mapping[str, tuple[str, ...]], address: str, key: str) -> str:
    answering = [name for name, tasks in models.items() if route.is_for(tasks)]
    if not answering:
        return ""
    fields = ", ".join(f"<code>{one.name}</code>" for one in msgspec.structs.fields(route.body))
    path = first_path(models[answering[0]]) if route.path == "/" else route.path
    example = {one.path: one.example for one in ROUTES}[path]
    body, answer = (html.escape(json.dumps(one), quote=False) for one in (example, ANSWERS[path]))
    return (
        f"<section><h2><code>POST {route.path}</code></h2><p>{html.escape(route.summary)}</p>"
        f"<p class=soft>Models: {html.escape(', '.join(answering))}. Fields: {fields}</p>"
        f"<pre>curl {address}{route.path}{key} \\\n  -d '{body}'</pre>"
        f"<p class=soft>Example answer</p><pre>{answer}</pre></section>"
    )

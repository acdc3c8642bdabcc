"""OpenTelemetry spans of requests, if its API is installed.

A request's span has two children: `queue` ends when its first batch is sent, `run` with its last answer. Each call to
the model server has a span `batch`, a child of its first request's span and linked to the others'.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

try:
    from opentelemetry import context, propagate, trace
except ImportError:
    trace = None

_NAME = "serving.gateway"


@contextlib.contextmanager
def request_span(route: str, headers: Mapping[str, str]) -> Iterator[Any]:
    """Opens a request's span under the parent in `headers`; yields its context, or None without OpenTelemetry."""
    if trace is None:
        yield None
        return
    tracer, parent = trace.get_tracer(_NAME), propagate.extract(headers)
    with tracer.start_as_current_span(f"POST {route}", parent, trace.SpanKind.SERVER, {"http.route": route}):
        yield context.get_current()


def record_waits(parent: Any, queued_ns: int, started_ns: int, ended_ns: int) -> None:
    """Adds the spans `queue` and `run`; times are of `time.time_ns`."""
    if trace is None or parent is None:
        return
    tracer = trace.get_tracer(_NAME)
    for name, begin, end in (("queue", queued_ns, started_ns), ("run", started_ns, ended_ns)):
        tracer.start_span(name, parent, start_time=begin).end(end)


@contextlib.contextmanager
def batch_span(contexts: Sequence[Any], rows: int, tokens: int) -> Iterator[None]:
    """Opens the span of a call to the model server."""
    if trace is None or not contexts:
        yield
        return
    links = [trace.Link(trace.get_current_span(one).get_span_context()) for one in contexts[1:]]
    attributes = {"rows": rows, "tokens": tokens}
    tracer = trace.get_tracer(_NAME)
    with tracer.start_as_current_span("batch", contexts[0], trace.SpanKind.CLIENT, attributes, links):
        yield

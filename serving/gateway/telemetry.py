"""Metrics for Prometheus, and spans of requests if OpenTelemetry's API is installed."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

try:
    from opentelemetry import context, propagate, trace
except ImportError:
    trace = None

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_POWERS = tuple(2.0**n for n in range(17))
# By output of a model (serving.client.tasks.COUNTS).
_TOKENS = {
    "text_tokens": "Tokens of texts to models that report truncation.",
    "truncated_tokens": "Those of them that the model did not read.",
    "unknown_tokens": "Unknown tokens among those that the model read.",
}
_NAME = "serving.gateway"


class Metrics:
    """A gateway's counters, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"gateway_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"gateway_{name}", text, labels, registry=self.registry)

        def histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
            return Histogram(f"gateway_{name}", text, labels, registry=self.registry, buckets=buckets)

        self.requests = counter("requests", "Requests, by route and HTTP status.", "route", "status")
        self.seconds = histogram("request_seconds", "From a request's headers to its answer.", "route")
        self.queue_seconds = histogram("queue_seconds", "A request's wait for its first batch.")
        self.batch_seconds = histogram("batch_seconds", "A batch's time at the model server.", "model")
        self.batch_rows = histogram("batch_rows", "Rows of a batch.", "model", buckets=_POWERS)
        self.batch_tokens = histogram("batch_tokens", "Tokens of a batch, as guessed.", "model", buckets=_POWERS)
        self.tokens = {name: counter(name, text, "model") for name, text in _TOKENS.items()}
        self.text_inputs = counter("text_inputs", "Texts to models that report truncation.", "model")
        self.truncated_inputs = counter(
            "truncated_inputs", "Texts that were cut to the longest row of the model.", "model"
        )
        self.live = gauge("model_live", "1 while the server has the model.", "model")
        self.queue_rows = gauge("queue_rows", "Rows that wait.")
        self.queue_tokens = gauge("queue_tokens", "Tokens that wait, as guessed.")
        self.in_flight = gauge("batches_in_flight", "Batches at the model server.")

    def page(self) -> bytes:
        return generate_latest(self.registry)


@contextlib.contextmanager
def request_span(route: str, headers: Mapping[str, str]) -> Iterator[Any]:
    """Opens a request's span under the parent in `headers`; yields its context, or None without OpenTelemetry."""
    if trace is None:
        yield None
        return
    tracer, parent = trace.get_tracer(_NAME), propagate.extract(headers)
    with tracer.start_as_current_span(f"POST {route}", parent, trace.SpanKind.SERVER, {"http.route": route}):
        yield context.get_current()


@contextlib.contextmanager
def batch_span(contexts: Sequence[Any], rows: int, tokens: int) -> Iterator[None]:
    """Opens the span of a call to the model server: a child of its first request's span, with links to the others'."""
    if trace is None or not contexts:
        yield
        return
    links = [trace.Link(trace.get_current_span(one).get_span_context()) for one in contexts[1:]]
    attributes = {"rows": rows, "tokens": tokens}
    tracer = trace.get_tracer(_NAME)
    with tracer.start_as_current_span("batch", contexts[0], trace.SpanKind.CLIENT, attributes, links):
        yield

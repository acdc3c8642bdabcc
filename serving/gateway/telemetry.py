"""Metrics for Prometheus."""

import functools

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = {"buckets": [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30]}
_POWERS = {"buckets": [2.0**n for n in range(17)]}
_MODEL = ["model"]
# By output of a model (serving.client.tasks.COUNTS).
_TOKENS = {
    "text_tokens": "Tokens of texts to models that report truncation.",
    "truncated_tokens": "Those of them that the model did not read.",
    "unknown_tokens": "Unknown tokens among those that the model read.",
}


class Metrics:
    """A gateway's counters, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = {"namespace": "gateway", "registry": self.registry}
        counter, gauge, seconds, powers = (
            functools.partial(kind, **own, **more)
            for kind, more in ((Counter, {}), (Gauge, {}), (Histogram, _SECONDS), (Histogram, _POWERS))
        )
        self.requests = counter("requests", "Requests, by route and HTTP status.", ["route", "status"])
        self.seconds = seconds("request_seconds", "From a request's headers to its answer.", ["route"])
        self.queue_seconds = seconds("queue_seconds", "A request's wait for its first batch.")
        self.batch_seconds = seconds("batch_seconds", "A batch's time at the model server.", _MODEL)
        self.batch_rows = powers("batch_rows", "Rows of a batch.", _MODEL)
        self.batch_tokens = powers("batch_tokens", "Tokens of a batch, as guessed.", _MODEL)
        self.tokens = {name: counter(name, text, _MODEL) for name, text in _TOKENS.items()}
        self.text_inputs = counter("text_inputs", "Texts to models that report truncation.", _MODEL)
        self.truncated_inputs = counter(
            "truncated_inputs", "Texts that were cut to the longest row of the model.", _MODEL
        )
        self.live = gauge("model_live", "1 while the server has the model.", _MODEL)
        self.queue_rows = gauge("queue_rows", "Rows that wait.")
        self.queue_tokens = gauge("queue_tokens", "Tokens that wait, as guessed.")
        self.in_flight = gauge("batches_in_flight", "Batches at the model server.")

    def page(self) -> bytes:
        return generate_latest(self.registry)

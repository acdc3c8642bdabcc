"""The gateway's Prometheus metrics."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_POWERS = tuple(2.0**n for n in range(17))


class Metrics:
    """A gateway's counters, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        options = {"registry": self.registry}
        self.requests = Counter(
            "gateway_requests", "Requests, by route and HTTP status.", ("route", "status"), **options
        )
        self.seconds = Histogram(
            "gateway_request_seconds", "From a request's headers to its answer.", ("route",), buckets=_SECONDS,
            **options,
        )  # fmt: skip
        self.queue_seconds = Histogram(
            "gateway_queue_seconds", "A request's wait for its first batch.", buckets=_SECONDS, **options
        )
        self.batch_seconds = Histogram(
            "gateway_batch_seconds", "A batch's time at the model server.", ("model",), buckets=_SECONDS, **options
        )
        self.batch_rows = Histogram("gateway_batch_rows", "Rows of a batch.", ("model",), buckets=_POWERS, **options)
        self.batch_tokens = Histogram(
            "gateway_batch_tokens", "Tokens of a batch, as guessed.", ("model",), buckets=_POWERS, **options
        )
        self.text_tokens = Counter(
            "gateway_text_tokens", "Tokens of texts to models that report truncation.", ("model",), **options
        )
        self.truncated_tokens = Counter(
            "gateway_truncated_tokens", "Those of them that the model did not read.", ("model",), **options
        )
        self.unknown_tokens = Counter(
            "gateway_unknown_tokens", "Unknown tokens among those that the model read.", ("model",), **options
        )
        self.text_inputs = Counter(
            "gateway_text_inputs", "Texts to models that report truncation.", ("model",), **options
        )
        self.truncated_inputs = Counter(
            "gateway_truncated_inputs", "Texts that were cut to the longest row of the model.", ("model",), **options
        )
        self.live = Gauge("gateway_model_live", "1 while the server has the model.", ("model",), **options)

    def watch_queue(self, rows: Callable[[], float], tokens: Callable[[], float], flights: Callable[[], float]) -> None:
        texts = {
            "gateway_queue_rows": ("Rows that wait.", rows),
            "gateway_queue_tokens": ("Tokens that wait, as guessed.", tokens),
            "gateway_batches_in_flight": ("Batches at the model server.", flights),
        }
        for name, (text, read) in texts.items():
            Gauge(name, text, registry=self.registry).set_function(read)

    def page(self) -> bytes:
        return generate_latest(self.registry)

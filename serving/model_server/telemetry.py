"""Request metrics under TF Serving's names, and an access log."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from serving.access_log import AccessLog
from serving.client.tasks import COUNTS
from serving.wire.protos import ModelSpec

# By path, as TensorFlow names it: "/tensorflow/serving/request_count".
METRICS: dict[str, Counter | Histogram] = {}
_REGISTRY = CollectorRegistry()
# What prometheus-client adds to TensorFlow's names: a suffix of counters, and the time when a series began.
_ADDED = re.compile(r"(?m)^(?:# \w+ )?[\w:]+_created[ {].*\n|^((?:# \w+ )?[\w:]+)_total(?=[ {])")


def _counter(path: str, *labels: str) -> Counter:
    METRICS[path] = Counter(f"{_name(path)}_total", path, labels, registry=_REGISTRY)
    return METRICS[path]


def _histogram(path: str, labels: Sequence[str], limits: Sequence[float]) -> Histogram:
    METRICS[path] = Histogram(_name(path), path, labels, registry=_REGISTRY, buckets=limits)
    return METRICS[path]


def _name(path: str) -> str:
    return re.sub("[^a-zA-Z0-9_]", ":", path)


def _powers(scale: float, growth: float, count: int) -> list[float]:
    return [scale * growth**k for k in range(count)]


_LATENCY_LIMITS = _powers(10, 1.8, 33)
_SERVING = "/tensorflow/serving"
REQUEST_COUNT = _counter(f"{_SERVING}/request_count", "model_name", "status")
REQUEST_LATENCY = _histogram(f"{_SERVING}/request_latency", ("model_name", "API", "entrypoint"), _LATENCY_LIMITS)
RUNTIME_LATENCY = _histogram(f"{_SERVING}/runtime_latency", ("model_name", "API", "runtime"), _LATENCY_LIMITS)
REQUEST_EXAMPLE_COUNTS = _histogram(f"{_SERVING}/request_example_counts", ("model",), _powers(1, 2, 15))
REQUEST_EXAMPLE_COUNT_TOTAL = _counter(f"{_SERVING}/request_example_count_total", "model")
WARMUP_LATENCY = _histogram(f"{_SERVING}/model_warmup_latency", ("model_path", "status"), _powers(1000, 1.8, 32))
WARMUP_RECORDS_READ = _counter(f"{_SERVING}/model_warmup_records_read", "model_path")

_BATCHING = f"{_SERVING}/batching_session"
QUEUING_LATENCY = _histogram(f"{_BATCHING}/queuing_latency", ("thread_pool_name",), _powers(100, 1.2, 52))
WRAPPED_RUN_COUNT = _counter(f"{_BATCHING}/wrapped_run_count")
PADDING_SIZE = _histogram(f"{_BATCHING}/padding_size", ("execution_batch_size",), _powers(1, 2, 10))
INPUT_BATCH_SIZE = _histogram(f"{_BATCHING}/input_batch_size", (), _powers(1, 2, 15))
PROCESSED_BATCH_SIZE = _histogram(f"{_BATCHING}/processed_batch_size", (), _powers(1, 2, 15))

# Not in the real server.
_OWN = "/albert_tf/serving"
TOKENS = {name: _counter(f"{_OWN}/{name}", "model_name") for name in COUNTS}
TEXT_INPUTS = _counter(f"{_OWN}/text_inputs", "model_name")
TRUNCATED_INPUTS = _counter(f"{_OWN}/truncated_inputs", "model_name")

# Models whose requests count under their names.
served: set[str] = set()


def record_tokens(model: str, counts: Mapping[str, np.ndarray]) -> None:
    """Counts tokens of texts, from arrays [rows]: all, truncated and, if reported, unknown."""
    for name, tokens in counts.items():
        TOKENS[name].labels(model).inc(int(tokens.sum()))
    truncated = counts["truncated_tokens"]
    TEXT_INPUTS.labels(model).inc(len(truncated))
    TRUNCATED_INPUTS.labels(model).inc(int((truncated > 0).sum()))


def total(path: str) -> int:
    """Returns a counter's sum over all its labels; 0 without any."""
    families = METRICS[path].collect() if path in METRICS else ()
    return int(sum(one.value for family in families for one in family.samples if one.name.endswith("_total")))


def exposition() -> str:
    """Returns all metrics in Prometheus' text format."""
    return _ADDED.sub(r"\1", generate_latest(_REGISTRY).decode())


class RequestLog(AccessLog):
    """Counts requests, and writes a line for each."""

    def add(
        self, entrypoint: str, api: str | None, call: str, spec: ModelSpec, status: str, seconds: float, request_id: str
    ) -> None:
        """Writes a line; unless `api` is None, counts the request and, if OK, records its latency.

        Unknown models share the empty name, so that clients cannot create endless series.
        """
        if api is not None:
            model = spec.name if spec.name in served else ""
            REQUEST_COUNT.labels(model, status).inc()
            if status == "OK":
                REQUEST_LATENCY.labels(model, api, entrypoint).observe(seconds * 1e6)
        self.write(
            request_id=request_id,
            entrypoint=entrypoint,
            call=call,
            model=spec.name,
            version=spec.version.value if spec.HasField("version") else None,
            label=spec.version_label or None,
            signature=spec.signature_name or None,
            status=status,
            milliseconds=round(seconds * 1000, 3),
        )

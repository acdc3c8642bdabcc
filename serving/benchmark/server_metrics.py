"""What a server says of itself: the means of its Prometheus histograms over a stretch of time.

Names: facts of TensorFlow Serving 2.x, servables/tensorflow/util.cc and batching_session.cc. Histograms are in
microseconds; request_latency counts OK answers only and holds all of the server's work on a request except gRPC's;
runtime_latency is the session's run, waiting in the batching queue included; queuing_latency that waiting alone.
request_count is of no use here: TensorFlow Serving counts REST's status probes in it. Of request_latency's series,
those of probes and of metadata have an empty API.
"""

import http.client
import urllib.request
from collections.abc import Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families

from serving.benchmark.rest import server_url
from tfrecords.base.errors import UserError

_PATH = "/monitoring/prometheus/metrics"
_REQUEST = ":tensorflow:serving:request_latency"
_RUNTIME = ":tensorflow:serving:runtime_latency"
_QUEUE = ":tensorflow:serving:batching_session:queuing_latency"
# (API, entrypoint) of request_latency's series for Predict, by the protocol that the benchmark spoke.
_PREDICT = {"grpc": ("Predict", "GRPC"), "rest": ("predict", "REST")}
# All of the model's own work, whichever API asked for it.
_INFERENCE = "inference"

Reading = dict[str, float]


def metrics_url(target: str, rest_api_port: int) -> str:
    return f"{server_url(target, rest_api_port)}{_PATH}"


def read(url: str, model: str) -> Reading:
    """Sums (microseconds) and counts of the three histograms for Predict, and how often the model answered at all.

    Raises UserError when the page is not there.
    """
    try:
        # No proxy: the server is here or on our network.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        text = opener.open(url, timeout=10).read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise UserError(
            f"no metrics at {url}: {error}; start the server with --rest_api_port and --monitoring_config_file"
        ) from error
    return parse(text, model)


def parse(text: str, model: str) -> Reading:
    reading: Reading = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            # The batching queue is labelled by its thread pool, not by model.
            if sample.labels.get("model_name", model) != model:
                continue
            for key in _keys(sample.name, sample.labels):
                reading[key] = reading.get(key, 0.0) + sample.value
    return reading


def _keys(name: str, labels: Mapping[str, str]) -> Iterator[str]:
    """Where in a Reading a sample counts."""
    histogram, _, part = name.rpartition("_")
    if part not in ("sum", "count"):
        return
    if histogram == _QUEUE or (histogram == _RUNTIME and labels.get("API", "").lower() == "predict"):
        yield name
    elif histogram == _REQUEST:
        for protocol, series in _PREDICT.items():
            if (labels.get("API"), labels.get("entrypoint")) == series:
                yield f"{protocol}{name}"
        if labels.get("API") and part == "count":
            yield _INFERENCE


def requests_so_far(reading: Reading) -> int:
    """How many inference requests the model has answered, over gRPC and REST; no status probes among them."""
    return int(reading.get(_INFERENCE, 0))


def means(before: Reading, after: Reading, protocol: str = "grpc") -> dict[str, float | None]:
    """Milliseconds a request between two readings: in the server, in its session, in its batching queue.

    None where a reading is missing, as of a server that was gone by then.
    """
    if not before:
        return dict.fromkeys(("server", "session", "queue"))
    return {
        "server": _mean(before, after, protocol + _REQUEST),
        "session": _mean(before, after, _RUNTIME),
        "queue": _mean(before, after, _QUEUE),
    }


def _mean(before: Reading, after: Reading, name: str) -> float | None:
    total, count = (after.get(name + part, 0.0) - before.get(name + part, 0.0) for part in ("_sum", "_count"))
    return total / count / 1000 if count > 0 else None

"""What a server says of itself: the means of its Prometheus histograms over a stretch of time.

Names: facts of TensorFlow Serving 2.x, servables/tensorflow/util.cc and batching_session.cc. Histograms are in
microseconds; request_latency counts OK answers only and holds all of the server's work on a request except gRPC's;
runtime_latency is the session's run, waiting in the batching queue included; queuing_latency that waiting alone.
"""

import urllib.request
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from tfrecords.errors import UserError

_PATH = "/monitoring/prometheus/metrics"
_REQUEST = ":tensorflow:serving:request_latency"
_RUNTIME = ":tensorflow:serving:runtime_latency"
_QUEUE = ":tensorflow:serving:batching_session:queuing_latency"
_REQUEST_COUNT = ":tensorflow:serving:request_count"

Reading = dict[str, float]


def metrics_url(target: str, rest_api_port: int) -> str:
    host = "127.0.0.1" if target.startswith("unix:") else target.rsplit(":", 1)[0]
    return f"http://{host}:{rest_api_port}{_PATH}"


def read(url: str, model: str) -> Reading:
    """Sums (microseconds) and counts of the three histograms for Predict over gRPC, and the model's request count.

    Raises UserError when the page is not there.
    """
    try:
        # No proxy: the server is here or on our network.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        text = opener.open(url, timeout=10).read().decode()
    except OSError as error:
        raise UserError(
            f"no metrics at {url}: {error}; start the server with --rest_api_port and --monitoring_config_file"
        ) from error
    return parse(text, model)


def parse(text: str, model: str) -> Reading:
    reading: Reading = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not _is_ours(sample.labels, model):
                continue
            for name in (_REQUEST, _RUNTIME, _QUEUE):
                for part in ("_sum", "_count"):
                    if sample.name == name + part:
                        reading[name + part] = reading.get(name + part, 0.0) + sample.value
            if sample.name in (_REQUEST_COUNT, _REQUEST_COUNT + "_total"):
                reading[_REQUEST_COUNT] = reading.get(_REQUEST_COUNT, 0.0) + sample.value
    return reading


def _is_ours(labels: Mapping[str, str], model: str) -> bool:
    # The batching queue is labelled by its thread pool, not by model.
    return labels.get("model_name", model) == model and labels.get("API", "Predict") == "Predict"


def requests_so_far(reading: Reading) -> int:
    return int(reading.get(_REQUEST_COUNT, 0))


def means(before: Reading, after: Reading) -> dict[str, float | None]:
    """Milliseconds a request between two readings: in the server, in its session, in its batching queue."""
    return {
        "server": _mean(before, after, _REQUEST),
        "session": _mean(before, after, _RUNTIME),
        "queue": _mean(before, after, _QUEUE),
    }


def _mean(before: Reading, after: Reading, name: str) -> float | None:
    total, count = (after.get(name + part, 0.0) - before.get(name + part, 0.0) for part in ("_sum", "_count"))
    return total / count / 1000 if count > 0 else None

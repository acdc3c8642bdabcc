"""Splits a request's mean latency into parts of the client and of the server, by the server's histograms.

Histograms (TensorFlow Serving 2.x, servables/tensorflow/util.cc and batching_session.cc, microseconds): request_latency
is the server's time without gRPC, for OK answers; runtime_latency is the session's run and the wait in the batching
queue; queuing_latency is that wait alone. request_count is unused: it includes REST's status requests.
"""

import http.client
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families

from serving.benchmark import rest
from serving.benchmark.workload import Workload
from serving.client.client import Client
from serving.client.messages import read_prediction
from serving.wire.protos import PredictResponse
from tfrecords.base.errors import UserError

_REPEATS = 100
_LONGEST_S = 0.5
_PATH = "/monitoring/prometheus/metrics"
_REQUEST = ":tensorflow:serving:request_latency"
_RUNTIME = ":tensorflow:serving:runtime_latency"
_QUEUE = ":tensorflow:serving:batching_session:queuing_latency"
# (API, entrypoint) of request_latency's series for Predict, by the protocol that the benchmark spoke.
_PREDICT = {"grpc": ("Predict", "GRPC"), "rest": ("predict", "REST")}
# All of the model's own work, for any API.
_INFERENCE = "inference"

Reading = dict[str, float]


def metrics_url(target: str, rest_api_port: int) -> str:
    """Returns the server's metrics URL."""
    return f"{rest.server_url(target, rest_api_port)}{_PATH}"


def read(url: str, model: str) -> Reading:
    """Reads the histograms' sums (microseconds) and counts for Predict; raises UserError if there are no metrics."""
    try:
        # No proxy: the server is on this machine or network.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        text = opener.open(url, timeout=10).read().decode()
    except (OSError, http.client.HTTPException) as error:
        raise UserError(
            f"no metrics at {url}: {error}; start the server with --rest_api_port and --monitoring_config_file"
        ) from error
    return parse(text, model)


def parse(text: str, model: str) -> Reading:
    """Parses a metrics page; see `read`."""
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
    """Returns the model's number of answers."""
    return int(reading.get(_INFERENCE, 0))


def means(before: Reading, after: Reading, protocol: str = "grpc") -> dict[str, float | None]:
    """Returns milliseconds per request in the server, its session and its queue; None if unknown."""
    histograms = {"server": protocol + _REQUEST, "session": _RUNTIME, "queue": _QUEUE}
    return {part: _mean(before, after, name) if before else None for part, name in histograms.items()}


def _mean(before: Reading, after: Reading, name: str) -> float | None:
    total, count = (after.get(name + part, 0.0) - before.get(name + part, 0.0) for part in ("_sum", "_count"))
    return total / count / 1000 if count > 0 else None


def client_costs(client: Client, workload: Workload, answer: bytes) -> dict[str, float]:
    """Returns milliseconds that serializing a request and reading an answer take."""
    inputs = workload.inputs[0]
    if workload.url:
        encode = _mean_ms(lambda: rest.request_body(inputs, client.signature_name))
        decode = _mean_ms(lambda: rest.read_answer(answer))
    else:
        encode = _mean_ms(lambda: client.request(inputs).SerializeToString())
        decode = _mean_ms(lambda: read_prediction(PredictResponse.FromString(answer)))
    return {"client_encode": encode, "client_decode": decode}


def _mean_ms(work: Callable[[], object]) -> float:
    work()
    begin, times = time.perf_counter(), 0
    while times < _REPEATS and time.perf_counter() - begin < _LONGEST_S:
        work()
        times += 1
    return (time.perf_counter() - begin) / times * 1000


def parts_of_mean(mean_ms: float | None, costs: dict[str, float], server: dict[str, float | None]) -> dict:
    """Returns client costs and the parts of the mean latency, in ms (None if unknown).

    wire: network, gRPC or HTTP, and the wait for a server thread. server_compute: the session's run. server_other: the
    rest.
    """
    request, session, queue = server.get("server"), server.get("session"), server.get("queue") or 0.0
    parts = dict(costs)
    parts["wire"] = None if request is None or mean_ms is None else max(mean_ms - request, 0.0)
    parts["server_queue"] = None if session is None else queue
    parts["server_compute"] = None if session is None else max(session - queue, 0.0)
    parts["server_other"] = None if request is None or session is None else max(request - session, 0.0)
    return parts

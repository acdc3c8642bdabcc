"""Where the time of a request goes, in means, since only means add up."""

import time
from collections.abc import Callable

from serving.benchmark import rest
from serving.benchmark.workload import Workload
from serving.client.client import Client
from serving.client.messages import read_prediction
from serving.wire.protos import PredictResponse

_REPEATS = 100
_LONGEST_S = 0.5


def client_costs(client: Client, workload: Workload, answer: bytes) -> dict[str, float]:
    """Milliseconds to make and serialise a request from arrays, and to read an answer into arrays.

    Measured apart: the benchmark sends requests serialised beforehand, and leaves answers unread.
    """
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


def breakdown(mean_ms: float | None, costs: dict[str, float], server: dict[str, float | None]) -> dict:
    """Parts of the mean latency, ms: client_encode and client_decode lie outside it, the others add up to it.

    wire: network, gRPC or HTTP on both sides and waiting for a server thread. server_queue: in the batching queue.
    server_compute: the session's run. server_other: the server's own work. None: the server does not say.
    """
    request, session, queue = server.get("server"), server.get("session"), server.get("queue") or 0.0
    parts = dict(costs)
    parts["wire"] = None if request is None or mean_ms is None else max(mean_ms - request, 0.0)
    parts["server_queue"] = None if session is None else queue
    parts["server_compute"] = None if session is None else max(session - queue, 0.0)
    parts["server_other"] = None if request is None or session is None else max(request - session, 0.0)
    return parts

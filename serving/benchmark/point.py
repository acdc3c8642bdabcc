"""Measures one point of a report: a workload under a load."""

import sys
import time
from dataclasses import dataclass

import grpc
import numpy as np

from serving.benchmark.load import Driver, Load, Samples, summarise
from serving.benchmark.settings import BenchmarkSettings
from serving.benchmark.workload import Workload
from serving.client.client import Client
from serving.client.errors import ServingError
from serving.wire import protos

# A busier generator process limits the figures.
BUSY_SHARE = 0.9
# The generator has fallen behind when more than this share of its sends, and more than one, left later than
# LAG_LIMIT_MS after they were due and later than a tenth of the median latency.
LAGGING_SHARE, LAG_LIMIT_MS, LAG_OF_MEDIAN = 0.01, 1.0, 0.10
# With a larger share of failures, percentiles of the answers do not describe the load.
FAILED_SHARE = 0.01
_STATUS_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


@dataclass(frozen=True)
class Probe:
    """Results before the load: the first answer to each request, and the time of the first call."""

    replies: list[bytes]
    first_ms: float


def probe(client: Client, workload: Workload) -> Probe:
    """Sends each request once; raises ServingError if a request fails."""
    stub = client.raw_stub(protos.PREDICT)
    replies, begin, first_ms = [], time.perf_counter(), None
    for request in workload.requests:
        try:
            replies.append(stub(request, timeout=client.timeout_s))
        except grpc.RpcError as error:
            raise ServingError.of(error, client.connection.target) from None
        first_ms = first_ms or (time.perf_counter() - begin) * 1000
    return Probe(replies, first_ms)


def measure(driver: Driver, workload: Workload, load: Load, first: Probe, settings: BenchmarkSettings) -> dict:
    """Measures one workload under one load (docs/reference/benchmark_report.md)."""
    name = f"{workload.name}, {load.name}"
    print(f"measuring {name}", file=sys.stderr)
    if settings.warmup_seconds > 0:
        warm_up = Load(load.arrival, load.clients, load.rate, least_requests=0)
        driver.run(warm_up, workload.requests, settings.warmup_seconds, settings.timeout_s)
    samples = driver.run(load, workload.requests, settings.seconds, settings.timeout_s)
    return {
        "name": name,
        "length": workload.length,
        "unit": workload.unit,
        "batch": workload.batch,
        "arrival": load.arrival,
        "clients": load.clients,
        "rate": load.rate,
        "first_call_ms": first.first_ms,
        **summary(samples, load, workload.batch, settings.bound_ms),
        "in_process": None,
    }


def summary(samples: Samples, load: Load, batch: int, bound_ms: float) -> dict:
    """Returns a point's figures and its validity."""
    latencies, is_open = samples.latencies_ms, load.rate is not None
    good = samples.code == 0
    answered, requests = int(good.sum()), len(good)
    # An open loop lasts as long as its schedule, even when nothing was due at its end.
    elapsed = max(float(samples.done.max(initial=0.0, where=good)), samples.seconds)
    behind = ["the generator fell behind"] * (is_open and fell_behind(samples))
    behind += ["the generator ran out of CPU"] * bool(requests and samples.cpu_share >= BUSY_SHARE)
    reasons = _failures(requests, answered) + behind
    in_bound = good & (latencies <= bound_ms)
    sending = max(samples.seconds, float(samples.sent.max(initial=0.0)))
    return {
        "latency_ms": summarise(latencies[good]),
        "requests": requests,
        "answered": answered,
        "seconds": elapsed,
        "requests_per_second": answered / elapsed,
        "examples_per_second": answered * batch / elapsed,
        "offered_per_second": requests / sending if is_open else None,
        "within_bound": float(in_bound.mean()) if bound_ms and requests else None,
        "errors": {
            _STATUS_NAMES[code]: {"count": int((samples.code == code).sum()), "first_s": first_s, "message": message}
            for code, (first_s, message) in sorted(samples.failures.items())
        },
        "generator": {"cpu_share": samples.cpu_share, "kept_up": not behind},
        "valid": not reasons,
        "invalid_because": reasons,
    }


def _failures(requests: int, answered: int) -> list[str]:
    if not requests:
        return ["no request was due"]
    if not answered:
        return ["no request was answered"]
    failed = requests - answered
    return [f"{failed / requests:.1%} of the requests failed"] * (failed > FAILED_SHARE * requests)


def fell_behind(samples: Samples) -> bool:
    """Returns whether the generator sent too many requests too late."""
    latencies = samples.latencies_ms[samples.code == 0]
    limit = max(LAG_LIMIT_MS, LAG_OF_MEDIAN * float(np.median(latencies)) if len(latencies) else 0.0)
    late = int(((samples.sent - samples.due) * 1000 > limit).sum())
    return late > max(1, LAGGING_SHARE * len(samples.due))

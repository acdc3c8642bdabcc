"""Measures one point of a report: a workload under a load."""

import sys
import time
from dataclasses import dataclass

import grpc
import numpy as np

from serving.benchmark import answers, statistics
from serving.benchmark.load import LONGEST_STRETCH, LoadShare, Samples, due_times
from serving.benchmark.settings import BenchmarkSettings
from serving.benchmark.workers import Workers
from serving.benchmark.workload import Workload
from serving.client.client import Client
from serving.client.errors import ServingError
from serving.wire import protos

# A busier generator process limits the figures.
BUSY_SHARE = 0.9
# The generator has fallen behind when more than this share of its sends, and more than one, left later than
# LAG_LIMIT_MS after they were due and later than a tenth of the median latency.
LAGGING_SHARE = 0.01
LAG_LIMIT_MS = 1.0
LAG_OF_MEDIAN = 0.10
# With a larger share of failures, percentiles of the answers do not describe the load.
FAILED_SHARE = 0.01
# Parts of a run that are compared to judge its stability. Fewer for a slow model: each needs so many answers that a
# steady server hardly ever leaves one with half of them, nor with too few for its median.
_MOST_WINDOWS = 10
_SAMPLES_A_WINDOW = 40
_STATUS_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


@dataclass(frozen=True)
class Load:
    """A closed loop of `clients`, or an open loop with `rate` requests per second.

    It goes on past --seconds until it has `least_requests`, by default enough for a median.
    """

    arrival: str
    clients: int | None = None
    rate: float | None = None
    least_requests: int = statistics.samples_needed(50.0)

    @property
    def name(self) -> str:
        if self.arrival == "closed":
            return f"closed loop, {self.clients} client{'s' if self.clients > 1 else ''}"
        return f"open loop, {self.arrival} {self.rate:.4g}/s"

    def share(self, workload: Workload, first: "Probe", timeout_s: float, seconds: float, least: int) -> LoadShare:
        """Returns the load of one run."""
        due = None
        if self.rate:
            seconds = min(max(seconds, least / self.rate), LONGEST_STRETCH * seconds)
            due = due_times(self.arrival, self.rate, seconds)
        return LoadShare(
            workload.requests,
            first.replies,
            timeout_s,
            start=0.0,
            seconds=seconds,
            clients=self.clients or 0,
            due=due,
            least_requests=least,
            item_step=self.clients or 1,
        )


@dataclass(frozen=True)
class Probe:
    """Results before the load: the first answer to each request, and the times of the first two calls."""

    replies: list[bytes]
    first_ms: float
    second_ms: float


def probe(client: Client, workload: Workload) -> Probe:
    """Sends each request once; raises ServingError if a request fails."""
    stub = client.raw_stub(protos.PREDICT)
    replies, times = [], []
    for request in workload.requests:
        begin = time.perf_counter()
        try:
            replies.append(stub(request, timeout=client.timeout_s))
        except grpc.RpcError as error:
            raise ServingError.of(error, client.connection.target) from None
        times.append((time.perf_counter() - begin) * 1000)
    return Probe(replies, *times[:2])


def measure(workers: Workers, workload: Workload, load: Load, first: Probe, settings: BenchmarkSettings) -> dict:
    """Measures one workload under one load (docs/reference/benchmark_report.md)."""
    name = f"{workload.name}, {load.name}"
    print(f"measuring {name}", file=sys.stderr)
    if settings.warmup_seconds > 0:
        workers.run(load.share(workload, first, settings.timeout_s, settings.warmup_seconds, 0))
    share = load.share(workload, first, settings.timeout_s, settings.seconds, load.least_requests)
    samples = workers.run(share)
    figures = summary(samples, share, workload.batch, settings.bound_ms)
    return {
        "name": name,
        "length": workload.length,
        "unit": workload.unit,
        "batch": workload.batch,
        "arrival": load.arrival,
        "clients": load.clients,
        "rate": load.rate,
        "first_call_ms": first.first_ms,
        "second_call_ms": first.second_ms,
        **figures,
        **answers.check(samples.differing, first.replies, figures["answered"]),
        "in_process": None,
    }


def summary(samples: Samples, share: LoadShare, batch: int, bound_ms: float) -> dict:
    """Returns a point's figures, its validity and stability."""
    latencies = samples.latencies_ms
    good = samples.code == 0
    answered, requests = int(good.sum()), len(good)
    # An open loop lasts as long as its schedule, even when nothing was due at its end.
    elapsed = max(float(samples.done.max(initial=0.0, where=good)), share.seconds)
    silence = statistics.longest_silence(samples.due, samples.done, good)
    stalled = statistics.is_stall(silence, latencies[good])
    verdict = statistics.stability(split_windows(samples, max(min(_MOST_WINDOWS, answered // _SAMPLES_A_WINDOW), 1)))
    if stalled:
        verdict = statistics.Stability(
            False, f"nobody was answered for {silence.seconds:.1f} s, from {silence.began:.1f} s on"
        )
    behind = ["the generator fell behind"] * (share.due is not None and fell_behind(samples))
    behind += ["the generator ran out of CPU"] * bool(requests and samples.cpu_share >= BUSY_SHARE)
    reasons = _failures(requests, answered) + behind
    in_bound = good & (latencies <= bound_ms)
    sending = max(share.seconds, float(samples.sent.max(initial=0.0)))
    return {
        "latency_ms": statistics.summarise(latencies[good]),
        "requests": requests,
        "answered": answered,
        "seconds": elapsed,
        "requests_per_second": answered / elapsed,
        "examples_per_second": answered * batch / elapsed,
        "offered_per_second": None if share.due is None else requests / sending,
        "goodput_per_second": float(in_bound.sum()) / elapsed if bound_ms else None,
        "within_bound": float(in_bound.mean()) if bound_ms and requests else None,
        "errors": _count_errors(samples),
        "generator": {"cpu_share": samples.cpu_share, "kept_up": not behind},
        "valid": not reasons,
        "invalid_because": reasons,
        "longest_silence_s": silence.seconds,
        "stalled": stalled,
        "stable": verdict.stable,
        "stability": verdict.reason,
    }


def _failures(requests: int, answered: int) -> list[str]:
    if not requests:
        return ["no request was due"]
    if not answered:
        return ["no request was answered"]
    failed = requests - answered
    return [f"{failed / requests:.1%} of the requests failed"] * (failed > FAILED_SHARE * requests)


def split_windows(samples: Samples, count: int) -> list[np.ndarray]:
    """Splits the latencies of good answers into windows of equal duration."""
    edges = np.linspace(0, float(samples.due.max(initial=0.0)) + 1e-9, count + 1)
    number = np.searchsorted(edges, samples.due, side="right") - 1
    return [samples.latencies_ms[(samples.code == 0) & (number == i)] for i in range(count)]


def fell_behind(samples: Samples) -> bool:
    """Returns whether the generator sent too many requests too late."""
    latencies = samples.latencies_ms[samples.code == 0]
    limit = max(LAG_LIMIT_MS, LAG_OF_MEDIAN * float(np.median(latencies)) if len(latencies) else 0.0)
    late = int(((samples.sent - samples.due) * 1000 > limit).sum())
    return late > max(1, LAGGING_SHARE * len(samples.due))


def _count_errors(samples: Samples) -> dict[str, dict]:
    errors = {}
    for code, (first_s, message) in sorted(samples.failures.items()):
        count = int((samples.code == code).sum())
        errors[_STATUS_NAMES[code]] = {"count": count, "first_s": first_s, "message": message}
    return errors

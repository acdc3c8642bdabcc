"""One point of a report: one workload under one arrival model, warmed up, measured, judged."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import numpy as np

from serving import protos
from serving.benchmark import answers, arrivals, statistics
from serving.benchmark.load import Effort, Samples, Share
from serving.benchmark.settings import LONGEST_STRETCH, Settings
from serving.benchmark.workers import Workers
from serving.benchmark.workload import Workload
from serving.client.client import Client
from serving.client.errors import ServingError

# A generator process this busy is what is being measured.
BUSY_SHARE = 0.9
# The generator has fallen behind when more than this share of its sends, and more than one, left later than
# LAG_LIMIT_MS after they were due and later than a tenth of the median latency.
LAGGING_SHARE = 0.01
LAG_LIMIT_MS = 1.0
LAG_OF_MEDIAN = 0.10
_SAMPLES_A_WINDOW = 30
_STATUS_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


@dataclass(frozen=True)
class Load:
    """How requests arrive: `clients` in a closed loop, or `rate` requests/s in an open one."""

    arrival: str
    clients: int | None = None
    rate: float | None = None

    @property
    def name(self) -> str:
        if self.arrival == "closed":
            return f"closed loop, {self.clients} client{'s' if self.clients > 1 else ''}"
        return f"open loop, {self.arrival} {self.rate:.4g}/s"


@dataclass(frozen=True)
class Probe:
    """First contact with a workload. `references`: an answer to each request; times of the first and second call."""

    references: list[bytes]
    first_ms: float
    second_ms: float


def probe(client: Client, workload: Workload, check: bool) -> Probe:
    """Sends each request once (two in all when answers are not checked). Raises ServingError when the first fails."""
    wanted = workload.requests if check else workload.requests[:2]
    stub = client.raw_stub(protos.PREDICT)
    replies, times = [], []
    for request in wanted:
        begin = time.perf_counter()
        try:
            replies.append(stub(request, timeout=client.timeout_s))
        except grpc.RpcError as error:
            raise ServingError.of(error, client.connection.target) from None
        times.append((time.perf_counter() - begin) * 1000)
    return Probe(replies, times[0], times[1])


def measure(
    workers: Workers,
    workload: Workload,
    load: Load,
    first: Probe,
    settings: Settings,
    tick: Callable[[float], None] = lambda seconds: None,
    after_warmup: Callable[[], None] = lambda: None,
) -> dict:
    """The point as the report holds it (docs/benchmark.md names every field)."""
    references = first.references if settings.check else [None] * len(workload.requests)
    if settings.warmup_seconds > 0:
        workers.run(_share(workload, references, load, settings, settings.warmup_seconds), tick)
    after_warmup()
    share = _share(workload, references, load, settings, settings.seconds)
    samples = workers.run(share, tick)
    return {
        "name": f"{workload.name}, {load.name}",
        "length": workload.length,
        "unit": workload.unit,
        "batch": workload.batch,
        "arrival": load.arrival,
        "clients": load.clients,
        "rate": load.rate,
        "first_call_ms": first.first_ms,
        "second_call_ms": first.second_ms,
        **summary(samples, share, workload, settings),
    }


def _share(workload: Workload, references: list, load: Load, settings: Settings, seconds: float) -> Share:
    common = {"requests": workload.requests, "references": references, "timeout_s": settings.timeout_s, "start": 0.0}
    if load.arrival != "closed":
        due = arrivals.due_times(load.arrival, load.rate, seconds, settings.seed)
        return Share(**common, seconds=seconds, due=due)
    return Share(
        **common,
        seconds=seconds,
        clients=load.clients,
        least_requests=settings.least_requests,
        longest_seconds=LONGEST_STRETCH * seconds,
        item_step=load.clients,
    )


def summary(samples: Samples, share: Share, workload: Workload, settings: Settings) -> dict:
    latencies = samples.latencies_ms
    good = samples.code == 0
    # An open loop lasts as long as its schedule, even when nothing was due at its end.
    elapsed = max(float(samples.done.max(initial=0.0)), share.seconds)
    # Fewer windows for a slow model: a window needs samples enough for its median.
    count = max(min(settings.windows, int(good.sum()) // _SAMPLES_A_WINDOW), 1)
    windows = split_windows(samples.due, latencies, good, count)
    verdict = statistics.stability(windows)
    lag = generator_lag(samples, latencies) if share.due is not None else None
    generator = generator_effort(samples.effort)
    reasons = ["the generator fell behind"] * (lag is not None and not lag["valid"])
    reasons += ["the generator ran out of CPU"] * (generator["cpu_share"] >= BUSY_SHARE)
    checked = answers.check(samples.differing, share.references)
    return {
        "latency_ms": statistics.summarise(latencies[good]),
        "interval_ms": statistics.intervals(windows),
        "requests": len(latencies),
        "requests_per_second": float(good.sum()) / elapsed,
        "examples_per_second": float(good.sum()) * workload.batch / elapsed,
        "goodput_per_second": goodput(latencies, good, settings.bound_ms or None, elapsed),
        "within_bound": within_bound(latencies, good, settings.bound_ms or None),
        "seconds": elapsed,
        "errors": _count_errors(samples),
        "answers": checked,
        "send_lag_ms": lag and lag["lag_ms"],
        "generator": generator,
        "valid": not reasons,
        "invalid_because": reasons,
        "stable": verdict.stable,
        "stability": verdict.reason,
        "windows": [
            {"latency_ms": statistics.summarise(window), "hdr_microseconds": statistics.encode_histogram(window)}
            for window in windows
        ],
    }


def split_windows(due: np.ndarray, latencies: np.ndarray, good: np.ndarray, count: int) -> list[np.ndarray]:
    """Latencies of good answers, cut into `count` equal stretches of time by when they were due."""
    edges = np.linspace(0, float(due.max(initial=0.0)) + 1e-9, count + 1)
    number = np.searchsorted(edges, due, side="right") - 1
    return [latencies[good & (number == i)] for i in range(count)]


def goodput(latencies: np.ndarray, good: np.ndarray, bound_ms: float | None, seconds: float) -> float | None:
    """Answers a second that came, and within the bound."""
    return None if bound_ms is None else float((good & (latencies <= bound_ms)).sum()) / seconds


def within_bound(latencies: np.ndarray, good: np.ndarray, bound_ms: float | None) -> float | None:
    """Their share of all requests sent; an error is not within any bound."""
    return None if bound_ms is None or not len(latencies) else float((good & (latencies <= bound_ms)).mean())


def generator_lag(samples: Samples, latencies: np.ndarray) -> dict:
    """How late the generator sent, and whether that spoils the figures."""
    lag = (samples.sent - samples.due) * 1000
    limit = max(LAG_LIMIT_MS, LAG_OF_MEDIAN * float(np.median(latencies))) if len(lag) else LAG_LIMIT_MS
    ordered = np.sort(lag)
    quantiles = {f"p{p:g}": statistics.percentile(ordered, p) for p in (50.0, 99.0)} if len(lag) else {}
    late = int((lag > limit).sum())
    lag_ms = {**quantiles, "max": float(lag.max(initial=0.0)), "limit": limit, "late": late}
    return {"lag_ms": lag_ms, "valid": late <= max(1, LAGGING_SHARE * len(lag))}


def generator_effort(effort: Effort) -> dict[str, float]:
    """cpu_share: of a core, by each process; waiting_share: of the time that senders were ready and had no CPU."""
    return {
        "cpu_share": effort.cpu / effort.wall if effort.wall else 0.0,
        "waiting_share": effort.waiting / effort.threads if effort.threads else 0.0,
    }


def _count_errors(samples: Samples) -> dict[str, dict]:
    """Status name -> how many, and the first message of it."""
    codes, counts = np.unique(samples.code[samples.code != 0], return_counts=True)
    return {
        _STATUS_NAMES[code]: {"count": count, "message": samples.messages.get(code, "")}
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True)
    }

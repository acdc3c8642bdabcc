"""Measures one point of a report: a workload under a load."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc
import numpy as np

from serving.benchmark import answers, breakdown, statistics
from serving.benchmark.load import Effort, LoadShare, Samples, due_times
from serving.benchmark.rest import RestStub
from serving.benchmark.schema import AnswerCheck, Checked, ErrorCount, Figures, Point, Timeline
from serving.benchmark.settings import LONGEST_STRETCH, BenchmarkSettings
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
# So many that a steady server hardly ever leaves a window with half of them, nor with too few for its median.
_SAMPLES_A_WINDOW = 40
# Steps of a point's timeline.
_TIMELINE_STEPS = 60
_STATUS_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


@dataclass(frozen=True)
class Load:
    """A closed loop of `clients`, or an open loop with `rate` requests per second."""

    arrival: str
    clients: int | None = None
    rate: float | None = None

    @property
    def name(self) -> str:
        if self.arrival == "closed":
            return f"closed loop, {self.clients} client{'s' if self.clients > 1 else ''}"
        return f"open loop, {self.arrival} {self.rate:.4g}/s"


@dataclass(frozen=True)
class Seen:
    """The server's version (None: unknown) and metrics at one moment."""

    version: int | None = None
    metrics: breakdown.Reading = field(default_factory=dict)


@dataclass(frozen=True)
class Probe:
    """Results before the load: first answers, times of the first two calls, client costs."""

    replies: list[bytes]
    first_ms: float
    second_ms: float
    costs: dict[str, float]
    version: int | None

    def references(self, workload: Workload) -> list[answers.Answer | None]:
        read = reader(workload, self.version)
        return [read(reply) for reply in self.replies]


def reader(workload: Workload, version: int | None) -> answers.Reader:
    """Returns a reader of answers; REST answers state no version and count as of `version`."""
    return answers.rest_reader(version) if workload.url else answers.read_grpc


def probe(client: Client, workload: Workload, check: bool, look: Callable[[], Seen] = Seen) -> Probe:
    """Sends each request once, or without `check` the first two alone; raises ServingError if a request fails."""
    before = look()
    wanted = workload.requests if check else workload.requests[:2]
    stub = RestStub(workload.url) if workload.url else client.raw_stub(protos.PREDICT)
    replies, times = [], []
    for request in wanted:
        begin = time.perf_counter()
        try:
            replies.append(stub(request, timeout=client.timeout_s))
        except grpc.RpcError as error:
            raise _refused(error, client, workload) from None
        times.append((time.perf_counter() - begin) * 1000)
    if workload.url:
        stub.close()
    version = before.version if look().version == before.version else None
    return Probe(replies, times[0], times[1], breakdown.client_costs(client, workload, replies[0]), version)


def _refused(error: grpc.RpcError, client: Client, workload: Workload) -> ServingError:
    if not workload.url:
        return ServingError.of(error, client.connection.target)
    hint = "is this the server's --rest_api_port?" if error.code() is grpc.StatusCode.UNAVAILABLE else ""
    return ServingError(error.code(), error.details(), hint, workload.url)


def measure(
    workers: Workers,
    workload: Workload,
    load: Load,
    first: Probe,
    settings: BenchmarkSettings,
    tick: Callable[[float], None] = lambda seconds: None,
    look: Callable[[], Seen] = Seen,
) -> Point:
    """Measures one workload under one load (docs/reference/benchmark_report.md)."""
    if settings.warmup_seconds > 0:
        workers.run(_share(workload, first, load, settings, settings.warmup_seconds), tick)
    before = look()
    share = _share(workload, first, load, settings, seconds_of(load, settings), settings.least_requests)
    samples = workers.run(share, tick)
    after = look()
    point = {
        "name": f"{workload.name}, {load.name}",
        "length": workload.length,
        "unit": workload.unit,
        "batch": workload.batch,
        "protocol": workload.protocol,
        "arrival": load.arrival,
        "clients": load.clients,
        "rate": load.rate,
        "first_call_ms": first.first_ms,
        "second_call_ms": first.second_ms,
        **summary(samples, share, workload, settings),
        **check_answers(samples, workload, first, settings, before, after),
    }
    server = breakdown.means(before.metrics, after.metrics, workload.protocol)
    parts = breakdown.parts_of_mean(point["latency_ms"]["mean"], first.costs, server)
    return point | {"breakdown_ms": parts, "in_process": None}


def seconds_of(load: Load, settings: BenchmarkSettings) -> float:
    """Returns a point's duration."""
    if load.arrival == "closed":
        return settings.seconds
    return min(max(settings.seconds, settings.least_requests / load.rate), LONGEST_STRETCH * settings.seconds)


def _share(
    workload: Workload, first: Probe, load: Load, settings: BenchmarkSettings, seconds: float, least_requests: int = 0
) -> LoadShare:
    references = first.replies if settings.check else [None] * len(workload.requests)
    return LoadShare(
        workload.requests,
        references,
        settings.timeout_s,
        start=0.0,
        seconds=seconds,
        clients=load.clients or 0,
        due=due_times(load.arrival, load.rate, seconds, settings.seed) if load.rate else None,
        least_requests=least_requests,
        longest_seconds=LONGEST_STRETCH * seconds,
        item_step=load.clients or 1,
        url=workload.url,
    )


def check_answers(
    samples: Samples, workload: Workload, first: Probe, settings: BenchmarkSettings, before: Seen, after: Seen
) -> Checked:
    """Checks the answers, but not those over REST if the version changed, since they do not name it."""
    around = {seen.version for seen in (before, after)} - {None}
    unknown: AnswerCheck = {"checked": False, "wrong": 0, "worst_difference": 0.0}
    # Answers without a version cannot be checked if versions changed meanwhile.
    if not settings.check or (workload.url and len(around) > 1):
        return {"answers": unknown, "versions": {str(version): None for version in sorted(around)}}
    answered = np.bincount(samples.item[samples.code == 0], minlength=len(workload.requests))
    read = reader(workload, next(iter(around), first.version))
    checked = answers.check(samples.differing, first.references(workload), answered, read)
    if workload.url:
        checked["versions"] = {str(version): int(answered.sum()) for version in around}
    return checked


def summary(samples: Samples, share: LoadShare, workload: Workload, settings: BenchmarkSettings) -> Figures:
    """Returns a point's figures, its validity and stability."""
    latencies = samples.latencies_ms
    good = samples.code == 0
    answered = int(good.sum())
    # An open loop lasts as long as its schedule, even when nothing was due at its end.
    elapsed = max(float(samples.done.max(initial=0.0, where=good)), share.seconds)
    # Fewer windows for a slow model: a window needs samples enough for its median.
    count = max(min(settings.windows, answered // _SAMPLES_A_WINDOW), 1)
    windows = split_windows(samples.due, latencies, good, count)
    silence = statistics.longest_silence(samples.due, samples.done, good)
    stalled = statistics.is_stall(silence, latencies[good])
    verdict = statistics.stability(windows)
    if stalled:
        verdict = statistics.Stability(
            False, f"nobody was answered for {silence.seconds:.1f} s, from {silence.began:.1f} s on"
        )
    lag = generator_lag(samples) if share.due is not None else None
    cpu_share, waiting_share = generator_effort(samples.effort)
    behind = ["the generator fell behind"] * (lag is not None and not lag["valid"])
    behind += ["the generator ran out of CPU"] * bool(len(good) and cpu_share >= BUSY_SHARE)
    reasons = _failures(len(good), answered) + behind
    in_bound = good & (latencies <= settings.bound_ms)
    return {
        "latency_ms": statistics.summarise(latencies[good]),
        "interval_ms": statistics.intervals(windows),
        "requests": len(latencies),
        "answered": answered,
        "requests_per_second": answered / elapsed,
        "examples_per_second": answered * workload.batch / elapsed,
        "offered_per_second": None if share.due is None else offered(samples, share),
        "goodput_per_second": float(in_bound.sum()) / elapsed if settings.bound_ms else None,
        "within_bound": float(in_bound.mean()) if settings.bound_ms and len(in_bound) else None,
        "seconds": elapsed,
        "errors": _count_errors(samples),
        "send_lag_ms": lag and lag["lag_ms"],
        "generator": {"cpu_share": cpu_share, "waiting_share": waiting_share, "kept_up": not behind},
        "valid": not reasons,
        "invalid_because": reasons,
        "silence": {"seconds": silence.seconds, "began": silence.began, "stalled": stalled},
        "timeline": timeline(samples, elapsed),
        "stable": verdict.stable,
        "stability": verdict.reason,
        "windows": [
            {"latency_ms": statistics.summarise(window), "hdr_microseconds": statistics.encode_histogram(window)}
            for window in windows
        ],
    }


def _failures(requests: int, answered: int) -> list[str]:
    if not requests:
        return ["no request was due"]
    if not answered:
        return ["no request was answered"]
    failed = requests - answered
    return [f"{failed / requests:.1%} of the requests failed"] * (failed > FAILED_SHARE * requests)


def offered(samples: Samples, share: LoadShare) -> float:
    """Returns requests sent per second."""
    return len(samples.sent) / max(share.seconds, float(samples.sent.max(initial=0.0)))


def split_windows(due: np.ndarray, latencies: np.ndarray, good: np.ndarray, count: int) -> list[np.ndarray]:
    """Splits the latencies of good answers into windows of equal duration."""
    edges = np.linspace(0, float(due.max(initial=0.0)) + 1e-9, count + 1)
    number = np.searchsorted(edges, due, side="right") - 1
    return [latencies[good & (number == i)] for i in range(count)]


def timeline(samples: Samples, elapsed: float) -> Timeline:
    """Counts answers and failures in equal steps of the run."""
    end = max(float(samples.done.max(initial=0.0)), elapsed)
    good = samples.code == 0
    answered, failed = (np.histogram(samples.done[which], _TIMELINE_STEPS, (0.0, end))[0] for which in (good, ~good))
    return {"step_s": end / _TIMELINE_STEPS, "answered": answered.tolist(), "failed": failed.tolist()}


def generator_lag(samples: Samples) -> dict:
    """Returns how late the generator sent requests, and whether that is acceptable."""
    lag = (samples.sent - samples.due) * 1000
    latencies = samples.latencies_ms[samples.code == 0]
    limit = max(LAG_LIMIT_MS, LAG_OF_MEDIAN * float(np.median(latencies)) if len(latencies) else 0.0)
    ordered = np.sort(lag)
    quantiles = {f"p{p:g}": statistics.percentile(ordered, p) for p in (50.0, 99.0)} if len(lag) else {}
    late = int((lag > limit).sum())
    lag_ms = {**quantiles, "max": float(lag.max(initial=0.0)), "limit": limit, "late": late}
    return {"lag_ms": lag_ms, "valid": late <= max(1, LAGGING_SHARE * len(lag))}


def generator_effort(effort: Effort) -> tuple[float, float]:
    """Returns the generator's CPU utilization, and the time share in which its threads waited for a CPU."""
    cpu = effort.cpu / effort.wall if effort.wall else 0.0
    return cpu, effort.waiting / effort.threads if effort.threads else 0.0


def _count_errors(samples: Samples) -> dict[str, ErrorCount]:
    codes, counts = np.unique(samples.code[samples.code != 0], return_counts=True)
    errors = {}
    for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
        first_s, message = samples.messages.get(code, (None, ""))
        errors[_STATUS_NAMES[code]] = {"count": count, "first_s": first_s, "message": message}
    return errors

"""Runs a benchmark: every workload under every load."""

import contextlib
import itertools
import os
from dataclasses import asdict, replace
from pathlib import Path

import grpc
from tqdm import tqdm

from serving.benchmark import answers, breakdown, find_rate, table
from serving.benchmark.point import Load, Probe, Seen, measure, probe, seconds_of
from serving.benchmark.report import environment
from serving.benchmark.schema import BenchmarkReport, InProcessFigures, MeasuredModel, Point, Search, Skipped, TrialRow
from serving.benchmark.settings import BenchmarkSettings
from serving.benchmark.statistics import samples_needed
from serving.benchmark.workers import InProcess, Workers, describe_saved_model
from serving.benchmark.workload import Workload, WorkloadMaker
from serving.client.client import Client
from serving.client.errors import ServingError
from tfrecords.base.errors import UserError
from tfrecords.base.script import progress_bar
from tfrecords.base.started import stop_insisting

SCHEMA = 1
INTERRUPTED = "interrupted"
# These failures of a first request are due to its content; others to the server's state.
_REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INTERNAL,
)
# A search starts at this share of the throughput of a closed loop of this many clients.
_SEARCH_CLIENTS = 4
_SEARCH_START = 0.5
# Attempts at a rate before the search assumes that the generator is the limit.
_GENERATOR_TRIES = 2
# A search stops at the rate with this number of arrivals in --seconds.
_LEAST_ARRIVALS = 10
# Time limit of the version request after a point, seconds.
_LOOK_S = 5.0
# Trials a search is likely to take, for the progress bar alone.
_LIKELY_TRIALS = 9


def run_benchmark(settings: BenchmarkSettings) -> BenchmarkReport:
    """Returns the report, as in report.json (fields: docs/reference/benchmark_report.md).

    >>> report = run_benchmark(BenchmarkSettings(target=target, lengths="8", seconds=0.1, warmup_seconds=0))
    >>> report["points"][0]["name"]
    '8 tokens x 1, closed loop, 1 client'

    Raises:
        UserError: The server or the model cannot be reached, or nothing could be measured.
    """
    described = environment()
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(
            Client(
                settings.connection(),
                settings.model,
                version=settings.version or None,
                label=settings.label or None,
                signature=settings.signature,
                timeout_s=settings.timeout_s,
            )
        )
        benchmark = Benchmark(client, settings.resolved(), stack)
        benchmark.measure_all()
    benchmark.model["versions"] = sorted({int(version) for point in benchmark.points for version in point["versions"]})
    if not benchmark.points:
        refused = benchmark.skipped[0]
        raise UserError(f"nothing could be measured; {refused['name']}: {refused['reason']}")
    return {
        "schema": SCHEMA,
        "tool": "albert-tf serving.benchmark",
        "target": settings.target,
        "model": benchmark.model,
        "scenario": settings.scenario or None,
        "settings": asdict(settings),
        "environment": described,
        "load_average_1min_at_end": round(os.getloadavg()[0], 2),
        "points": benchmark.points,
        "found_rates": benchmark.found_rates,
        "skipped": benchmark.skipped,
        "ended_early": benchmark.ended_early,
    }


class Benchmark:
    """One server's measurement; results go to `points`, `found_rates` and `skipped`."""

    def __init__(self, client: Client, settings: BenchmarkSettings, stack: contextlib.ExitStack):
        self.client, self.settings = client, settings
        self.points: list[Point] = []
        self.found_rates: list[Search] = []
        self.skipped: list[Skipped] = []
        self.ended_early: str | None = None
        self._metrics_url = (
            breakdown.metrics_url(settings.target, settings.rest_api_port) if settings.rest_api_port else None
        )
        version, signatures = client.described()
        signature = client.signature_in(signatures)
        self.model: MeasuredModel = {
            "name": settings.model,
            "version": version,
            "signature": str(signature),
            "requests_before": self._requests_before(),
        }
        self._maker = WorkloadMaker(client, signature, settings.seed, settings.text_file, settings.tokenizer)
        self._in_process = None
        if settings.in_process:
            self._in_process = stack.enter_context(InProcess(settings.in_process, settings.signature))
            self.model["in_process"] = describe_saved_model(settings.in_process, self._in_process.load_seconds)
        self._workers = stack.enter_context(Workers(settings.connection(), settings.processes, settings.connections))
        lengths = [None] if settings.mixed else settings.numbers("lengths")
        self._workloads = list(itertools.product(settings.numbers("batches"), lengths, settings.protocol_list()))
        self._bar = stack.enter_context(_progress_bar(len(self._workloads) * self._workload_seconds()))

    def measure_all(self) -> None:
        try:
            for batch, length, protocol in self._workloads:
                self._measure_workload(length, batch, protocol)
        except (UserError, KeyboardInterrupt) as error:
            if not self.points:
                raise
            stop_insisting()
            self.ended_early = str(error) or INTERRUPTED

    def _measure_workload(self, length: int | None, batch: int, protocol: str) -> None:
        try:
            workload = self._make(length, batch, protocol)
            self._bar.set_description(f"{workload.name}, first answers", refresh=False)
            first = probe(self.client, workload, self.settings.check, self._look)
        except UserError as error:
            if length is None or (isinstance(error, ServingError) and error.code not in _REFUSALS):
                raise
            self._skip(f"{length} {self._maker.unit} x {batch}" + " (REST)" * (protocol == "rest"), length, error)
            return
        first_point = len(self.points)
        if self.settings.find_rate:
            self._search(workload, first)
        for load in loads(self.settings):
            self.points.append(self._measure(workload, load, first))
            require_alive(self.points[-1])
        if self._in_process is not None and protocol == self.settings.protocol_list()[0]:
            in_process = self._measure_in_process(workload, first)
            for point in self.points[first_point:]:
                point["in_process"] = in_process

    def _make(self, length: int | None, batch: int, protocol: str) -> Workload:
        if length is None:
            made = self._maker.mixed(batch, max(self.settings.numbers("lengths")))
        else:
            made = self._maker.of_length(length, batch)
        return made.over_rest(self.settings.rest_url(), self.settings.signature) if protocol == "rest" else made

    def _skip(self, name: str, length: int, error: UserError) -> None:
        self.skipped.append({"name": name, "length": length, "reason": str(error)})
        self._bar.write(f"skipped {name}: {table.shortened(str(error))}")
        self._bar.total = max(self._bar.total - self._workload_seconds(), self._bar.n)
        self._bar.refresh()

    def _measure(
        self, workload: Workload, load: Load, first: Probe, settings: BenchmarkSettings | None = None
    ) -> Point:
        settings = settings or self.settings
        self._bar.set_description(f"{workload.name}, {load.name}", refresh=False)
        self._bar.total += seconds_of(load, settings) - self.settings.seconds
        return measure(self._workers, workload, load, first, settings, self._tick, self._look)

    def _search(self, workload: Workload, first: Probe) -> None:
        closed = self._measure(workload, Load("closed", clients=_SEARCH_CLIENTS), first)
        require_alive(closed)
        lowest = _LEAST_ARRIVALS / self.settings.seconds
        first_rate = max(_SEARCH_START * closed["requests_per_second"], lowest)
        settings = trial_settings(self.settings)
        measured: dict[float, Point] = {}
        trials: list[find_rate.Trial] = []
        try:
            while (rate := find_rate.next_rate(trials, first_rate, lowest)) is not None:
                for _ in range(_GENERATOR_TRIES):
                    point = self._measure(workload, Load("poisson", rate=rate), first, settings)
                    trial = find_rate.judge(point)
                    if trial.limit != "generator":
                        break
                measured[rate] = point
                trials.append(trial)
                require_alive(point)
        finally:
            # Also of a search that was cut short.
            if trials:
                self.found_rates.append(_found(workload, self.settings.bound_ms, trials, measured))
                self.points.append(measured[find_rate.best_rate(trials) or min(measured)])

    def _measure_in_process(self, workload: Workload, first: Probe) -> InProcessFigures:
        self._bar.set_description(f"{workload.name}, in process", refresh=False)
        seconds, warmup = self.settings.seconds, self.settings.warmup_seconds
        result = self._in_process.measure(workload.inputs, seconds, warmup, self.settings.least_requests)
        self._tick(seconds + warmup)
        served = first.references(workload)
        versions = {answer.version for answer in served if answer is not None} - {None}
        folder = Path(self.settings.in_process).resolve().name
        other = folder.isdigit() and bool(versions) and versions != {int(folder)}
        # JSON has no types, and another version may answer otherwise.
        if workload.url or other:
            return result | {"differing_answers": None, "served_versions": sorted(versions)}
        expected = self._in_process.answers(workload.inputs[: len(served)])
        differing = answers.disagreements(served, expected)
        return result | {"differing_answers": differing, "served_versions": sorted(versions)}

    def _look(self) -> Seen:
        version, metrics = None, {}
        with contextlib.suppress(UserError):
            version = self.client.served_version(timeout_s=min(self.settings.timeout_s, _LOOK_S))
            metrics = self._read_metrics()
        return Seen(version, metrics)

    def _requests_before(self) -> int | None:
        if not self._metrics_url:
            return None
        try:
            return breakdown.requests_so_far(self._read_metrics())
        except UserError:
            if "rest" not in self.settings.protocol_list():
                raise
            # The port may be given to measure REST, with metrics off.
            self._metrics_url = None
            return None

    def _read_metrics(self) -> breakdown.Reading:
        return breakdown.read(self._metrics_url, self.settings.model) if self._metrics_url else {}

    def _tick(self, seconds: float) -> None:
        # A longer point or search than expected must not exceed the bar.
        self._bar.update(min(seconds, max(self._bar.total - self._bar.n, 0)))

    def _workload_seconds(self) -> float:
        settings = self.settings
        points = len(loads(settings)) + settings.find_rate * _LIKELY_TRIALS + bool(settings.in_process)
        return points * (settings.warmup_seconds + settings.seconds)


def trial_settings(settings: BenchmarkSettings) -> BenchmarkSettings:
    """Returns the settings for runs with enough requests for a p99."""
    return replace(settings, least_requests=settings.least_requests or samples_needed(99.0))


def require_alive(point: Point) -> None:
    """Raises UserError for a point without any answer."""
    if not point["answered"] and set(point["errors"]) == {grpc.StatusCode.UNAVAILABLE.name}:
        message = point["errors"][grpc.StatusCode.UNAVAILABLE.name]["message"]
        raise UserError(f"{point['name']}: the server answers no more: {message}")


def loads(settings: BenchmarkSettings) -> list[Load]:
    """Returns the loads of each workload."""
    if settings.arrival != "closed":
        return [Load(settings.arrival, rate=rate) for rate in settings.numbers("rate")]
    # A search chooses its own loads.
    clients = [] if settings.find_rate else settings.numbers("clients")
    return [Load("closed", clients=number) for number in clients]


def _found(workload: Workload, bound_ms: float, trials: list[find_rate.Trial], measured: dict[float, Point]) -> Search:
    best = find_rate.best_rate(trials)
    failed = [trial for trial in trials if not trial.passed and trial.rate > (best or 0)]
    return {
        "name": workload.name,
        "length": workload.length,
        "batch": workload.batch,
        "bound_ms": bound_ms,
        "rate": measured[best]["offered_per_second"] if best else None,
        "requests": measured[best]["requests"] if best else None,
        "limited_by": min(failed, key=lambda trial: trial.rate).limit if failed else None,
        "trials": [_trial_row(trial, measured[trial.rate]) for trial in trials],
    }


def _trial_row(trial: find_rate.Trial, point: Point) -> TrialRow:
    return {
        "rate": trial.rate,
        "limit": trial.limit,
        "requests": point["requests"],
        "offered_per_second": point["offered_per_second"],
        "requests_per_second": point["requests_per_second"],
        "within_bound": point["within_bound"],
        "latency_ms": point["latency_ms"],
        "valid": point["valid"],
    }


def _progress_bar(seconds: float) -> tqdm:
    form = "{desc} {percentage:3.0f}% |{bar:20}| {n:.0f} of {total:.0f} s"
    return progress_bar(total=seconds, unit="s", bar_format=form)

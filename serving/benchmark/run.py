"""Runs a benchmark: every workload under every load."""

import contextlib
import itertools
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc

from serving.benchmark import answers, find_rate
from serving.benchmark.point import Load, Probe, measure, probe
from serving.benchmark.report import environment
from serving.benchmark.settings import BenchmarkSettings
from serving.benchmark.statistics import samples_needed
from serving.benchmark.workers import InProcess, Workers
from serving.benchmark.workload import Workload, WorkloadMaker
from serving.client.client import Client
from serving.client.errors import ServingError
from tfrecords.base.errors import UserError
from tfrecords.base.machine.started import stop_insisting

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


def run_benchmark(settings: BenchmarkSettings) -> dict[str, Any]:
    """Returns the report, as in report.json (fields: docs/reference/benchmark_report.md).

    >>> report = run_benchmark(BenchmarkSettings(target=target, lengths="8", seconds=0.1, warmup_seconds=0))
    >>> report["points"][0]["name"]
    '8 tokens x 1, closed loop, 1 client'

    Raises:
        UserError: The server or the model cannot be reached, or nothing could be measured.
    """
    described = environment()
    with contextlib.ExitStack() as stack:
        benchmark = Benchmark(settings, stack)
        benchmark.measure_all()
    if not benchmark.points:
        refused = benchmark.skipped[0]
        raise UserError(f"nothing could be measured; {refused['name']}: {refused['reason']}")
    benchmark.model["versions"] = sorted({version for point in benchmark.points for version in point["versions"]})
    return {
        "target": settings.target,
        "model": benchmark.model,
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

    def __init__(self, settings: BenchmarkSettings, stack: contextlib.ExitStack):
        self.settings = settings
        self.points: list[dict] = []
        self.found_rates: list[dict] = []
        self.skipped: list[dict] = []
        self.ended_early: str | None = None
        self._client = stack.enter_context(
            Client(
                settings.connection(),
                settings.model,
                version=settings.version or None,
                label=settings.label or None,
                signature=settings.signature,
                timeout_s=settings.timeout_s,
            )
        )
        version, signatures = self._client.described()
        signature = self._client.signature_in(signatures)
        self.model: dict[str, Any] = {"name": settings.model, "version": version, "signature": str(signature)}
        self._maker = WorkloadMaker(self._client, signature, settings.text_file, settings.tokenizer)
        self._in_process = None
        if path := settings.in_process:
            self._in_process = stack.enter_context(InProcess(path, settings.signature))
            size = sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
            loaded = {"path": path, "megabytes": size / 1e6, "load_seconds": self._in_process.load_seconds}
            self.model["in_process"] = loaded
        self._workers = stack.enter_context(Workers(settings.connection(), settings.processes))

    def measure_all(self) -> None:
        lengths = [None] if self.settings.mixed else self.settings.numbers("lengths")
        try:
            for batch, length in itertools.product(self.settings.numbers("batches"), lengths):
                self._measure_workload(length, batch)
        except (UserError, KeyboardInterrupt) as error:
            if not self.points:
                raise
            stop_insisting()
            self.ended_early = str(error) or INTERRUPTED

    def _measure_workload(self, length: int | None, batch: int) -> None:
        try:
            if length is None:
                workload = self._maker.mixed(batch, max(self.settings.numbers("lengths")))
            else:
                workload = self._maker.of_length(length, batch)
            first = probe(self._client, workload)
        except UserError as error:
            if length is None or (isinstance(error, ServingError) and error.code not in _REFUSALS):
                raise
            name = f"{length} {self._maker.unit} x {batch}"
            self.skipped.append({"name": name, "length": length, "reason": str(error)})
            return
        first_point = len(self.points)
        if self.settings.find_rate:
            self._search(workload, first)
        for load in loads(self.settings):
            self.points.append(self._measure(workload, load, first))
            require_alive(self.points[-1])
        if self._in_process is not None:
            in_process = self._measure_in_process(workload, first)
            for point in self.points[first_point:]:
                point["in_process"] = in_process

    def _measure(self, workload: Workload, load: Load, first: Probe) -> dict:
        return measure(self._workers, workload, load, first, self.settings)

    def _search(self, workload: Workload, first: Probe) -> None:
        closed = self._measure(workload, Load("closed", clients=_SEARCH_CLIENTS), first)
        require_alive(closed)
        lowest = _LEAST_ARRIVALS / self.settings.seconds
        first_rate = max(_SEARCH_START * closed["requests_per_second"], lowest)
        trials: list[find_rate.Trial] = []
        try:
            while (rate := find_rate.next_rate(trials, first_rate, lowest)) is not None:
                load = Load("poisson", rate=rate, least_requests=samples_needed(99.0))
                for _ in range(_GENERATOR_TRIES):
                    trial = find_rate.judge(self._measure(workload, load, first))
                    if trial.limit != "generator":
                        break
                trials.append(trial)
                require_alive(trial.point)
        finally:
            # Also of a search that was cut short.
            if trials:
                self.found_rates.append(_found(workload, self.settings.bound_ms, trials))
                best = find_rate.best_trial(trials) or min(trials, key=lambda trial: trial.rate)
                self.points.append(best.point)

    def _measure_in_process(self, workload: Workload, first: Probe) -> dict:
        print(f"measuring {workload.name}, in process", file=sys.stderr)
        settings, least = self.settings, samples_needed(50.0)
        figures, expected = self._in_process.measure(workload.inputs, settings.seconds, settings.warmup_seconds, least)
        served = [answers.read(reply)[1] for reply in first.replies]
        differing = sum(not answers.agree(*pair) for pair in zip(expected, served, strict=True))
        return figures | {"differing_answers": differing}


def require_alive(point: dict) -> None:
    """Raises UserError for a point without any answer from a server that is gone."""
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


def _found(workload: Workload, bound_ms: float, trials: list[find_rate.Trial]) -> dict:
    best, failed = find_rate.best_trial(trials), find_rate.lowest_failure(trials)
    return {
        "name": workload.name,
        "bound_ms": bound_ms,
        "rate": best and best.point["offered_per_second"],
        "requests": best and best.point["requests"],
        "limited_by": failed and failed.limit,
        "trials": [trial.point | {"limit": trial.limit} for trial in trials],
    }

"""Runs a benchmark: every workload under every load."""

import contextlib
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc

from serving.benchmark.in_process import InProcess, agree, read
from serving.benchmark.load import Driver, Load, samples_needed
from serving.benchmark.point import Probe, measure, probe
from serving.benchmark.report import environment
from serving.benchmark.settings import BenchmarkSettings
from serving.benchmark.workload import Workload, WorkloadMaker
from serving.client.client import Client
from serving.client.errors import ServingError
from tfrecords.base.errors import UserError
from tfrecords.base.machine.started import stop_insisting

# The search ends when the lowest failing rate is within this of the highest passing one.
PRECISION = 0.05
# p99 meets the bound: this share of requests is answered within it. Errors and answers after the deadline are not.
WITHIN = 0.99
_GROWTH, _MOST_TRIALS = 1.5, 20


def limit_of(point: dict) -> str:
    """Returns why a measured point misses its bound: "latency", "errors" or "generator"; "" if it meets it.

    A missed bound counts against the server only if the generator was on time.
    """
    refused = sum(error["count"] for status, error in point["errors"].items() if status != "DEADLINE_EXCEEDED")
    if (point["within_bound"] or 0.0) >= WITHIN:
        return ""
    if refused > (1 - WITHIN) * point["requests"]:
        return "errors"
    return "latency" if point["generator"]["kept_up"] else "generator"


def bracket(trials: list[dict]) -> tuple[dict | None, dict | None]:
    """Returns the trial (a point with its `limit`) with the highest rate that passed, and the lowest above it."""
    best = max((one for one in trials if not one["limit"]), key=lambda one: one["rate"], default=None)
    failed = [one for one in trials if one["limit"] and one["rate"] > (best["rate"] if best else 0)]
    return best, min(failed, key=lambda one: one["rate"], default=None)


def search(measure: Callable[[float], dict], first_rate: float, lowest_rate: float = 0.0) -> Iterator[dict]:
    """Yields the trials that `measure` makes of rates: from `first_rate` on, it brackets the limit, then bisects."""
    trials: list[dict] = []
    rate = first_rate
    while len(trials) < _MOST_TRIALS and rate >= max(lowest_rate, first_rate / 1000):
        trials.append(measure(rate))
        yield trials[-1]
        best, failed = bracket(trials)
        if best and failed and failed["rate"] / best["rate"] <= 1 + PRECISION:
            return
        if not failed:
            rate *= _GROWTH
        else:
            rate = math.sqrt(failed["rate"] * best["rate"]) if best else rate / 2


INTERRUPTED = "interrupted"
# These failures of a first request are due to its content; others to the server's state.
_REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INTERNAL,
)
# A search starts at this share of the throughput of a closed loop of this many clients.
_SEARCH_CLIENTS, _SEARCH_START = 4, 0.5
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
    report: dict[str, Any] = {"target": settings.target, "settings": asdict(settings), "environment": environment()}
    report |= {"points": [], "found_rates": [], "skipped": [], "ended_early": None}
    with contextlib.ExitStack() as stack:
        Benchmark(settings, report, stack).measure_all()
    if not report["points"]:
        refused = report["skipped"][0]
        raise UserError(f"nothing could be measured; {refused['name']}: {refused['reason']}")
    return report | {"load_average_1min_at_end": round(os.getloadavg()[0], 2)}


class Benchmark:
    """One server's measurement; results go to the `report`."""

    def __init__(self, settings: BenchmarkSettings, report: dict[str, Any], stack: contextlib.ExitStack):
        self.settings, self.report, self.points = settings, report, report["points"]
        self._client = client = stack.enter_context(Client(**settings.asked()))
        version, signatures = client.described()
        signature = client.signature_in(signatures)
        report["model"] = {"name": settings.model, "version": version, "signature": str(signature)}
        self._maker = WorkloadMaker(client, signature, settings.text_file, settings.tokenizer)
        self._in_process = None
        if path := settings.in_process:
            self._in_process = stack.enter_context(InProcess(path, settings.signature))
            size = sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
            loaded = {"path": path, "megabytes": size / 1e6, "load_seconds": self._in_process.load_seconds}
            report["model"]["in_process"] = loaded
        self._driver = stack.enter_context(contextlib.closing(Driver(settings.connection())))

    def measure_all(self) -> None:
        lengths = [None] if self.settings.text_file else self.settings.numbers("lengths")
        try:
            for batch, length in itertools.product(self.settings.numbers("batches"), lengths):
                self._measure_workload(length, batch)
        except (UserError, KeyboardInterrupt) as error:
            if not self.points:
                raise
            stop_insisting()
            self.report["ended_early"] = str(error) or INTERRUPTED

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
            self.report["skipped"].append({"name": name, "length": length, "reason": str(error)})
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
        return measure(self._driver, workload, load, first, self.settings)

    def _search(self, workload: Workload, first: Probe) -> None:
        closed = self._measure(workload, Load("closed", clients=_SEARCH_CLIENTS), first)
        require_alive(closed)
        lowest = _LEAST_ARRIVALS / self.settings.seconds
        first_rate = max(_SEARCH_START * closed["requests_per_second"], lowest)

        def trial(rate: float) -> dict:
            load = Load("poisson", rate=rate, least_requests=samples_needed(99.0))
            for _ in range(_GENERATOR_TRIES):
                point = self._measure(workload, load, first)
                point["limit"] = limit_of(point)
                if point["limit"] != "generator":
                    break
            return point

        trials: list[dict] = []
        try:
            for point in search(trial, first_rate, lowest):
                trials.append(point)
                require_alive(point)
        finally:
            # Also of a search that was cut short.
            if trials:
                best, failed = bracket(trials)
                self.report["found_rates"].append({
                    "name": workload.name,
                    "bound_ms": self.settings.bound_ms,
                    "rate": best and best["offered_per_second"],
                    "requests": best and best["requests"],
                    "limited_by": failed and failed["limit"],
                    "trials": trials,
                })  # fmt: skip
                self.points.append(best or min(trials, key=lambda one: one["rate"]))

    def _measure_in_process(self, workload: Workload, first: Probe) -> dict:
        print(f"measuring {workload.name}, in process", file=sys.stderr)
        figures, expected = self._in_process.measure(
            workload.inputs, self.settings.seconds, self.settings.warmup_seconds
        )
        served = [read(reply) for reply in first.replies]
        return figures | {"differing_answers": sum(not agree(*pair) for pair in zip(expected, served, strict=True))}


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
    return [] if settings.find_rate else [Load("closed", clients=number) for number in settings.numbers("clients")]

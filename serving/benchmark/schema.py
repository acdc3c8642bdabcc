"""The types of report.json (docs/reference/benchmark_report.md). None means no figure."""

from typing import Any, NotRequired, TypedDict

# By "min", "mean", "max" and the percentiles' names; None where too few samples came to quote it.
LatencyMs = dict[str, float | None]


class ErrorCount(TypedDict):
    """Failures of one status."""

    count: int
    first_s: float | None
    message: str


class Generator(TypedDict):
    """The generator's CPU utilization, and the threads' waiting for a CPU."""

    cpu_share: float
    waiting_share: float
    kept_up: bool


class SilenceFound(TypedDict):
    """The longest time in which requests waited and none was answered."""

    seconds: float
    began: float
    stalled: bool


class Timeline(TypedDict):
    """Requests that ended in each step of time."""

    step_s: float
    answered: list[int]
    failed: list[int]


class TimeWindow(TypedDict):
    """One of a run's equal parts; its latencies are an HdrHistogram of microseconds."""

    latency_ms: LatencyMs
    hdr_microseconds: str


class Figures(TypedDict):
    """A point's figures, validity and stability."""

    latency_ms: LatencyMs
    interval_ms: dict[str, list[float] | None]
    requests: int
    answered: int
    requests_per_second: float
    examples_per_second: float
    offered_per_second: float | None
    goodput_per_second: float | None
    within_bound: float | None
    seconds: float
    errors: dict[str, ErrorCount]
    send_lag_ms: dict[str, float] | None
    generator: Generator
    valid: bool
    invalid_because: list[str]
    silence: SilenceFound
    timeline: Timeline
    stable: bool | None
    stability: str
    windows: list[TimeWindow]


class AnswerCheck(TypedDict):
    """Results of the answer check."""

    checked: bool
    wrong: int
    worst_difference: float | None


class Checked(TypedDict):
    """The check of a point's answers, and their number by version (None: unknown)."""

    answers: AnswerCheck
    versions: dict[str, int | None]


class InProcessFigures(TypedDict):
    """The in-process model's figures for the same requests."""

    latency_ms: LatencyMs
    differing_answers: NotRequired[int | None]
    served_versions: NotRequired[list[int]]


class Point(Figures, Checked):
    """One workload under one load."""

    name: str
    length: int | None
    unit: str
    batch: int
    protocol: str
    arrival: str
    clients: int | None
    rate: float | None
    first_call_ms: float
    second_call_ms: float
    breakdown_ms: dict[str, float | None]
    in_process: InProcessFigures | None


class TrialRow(TypedDict):
    """One rate tried in a search; `limit` is why the rate failed, or ""."""

    rate: float
    limit: str
    requests: int
    offered_per_second: float | None
    requests_per_second: float
    within_bound: float | None
    latency_ms: LatencyMs
    valid: bool


class Search(TypedDict):
    """The result of a search for the highest rate."""

    name: str
    length: int | None
    batch: int
    bound_ms: float
    rate: float | None
    requests: int | None
    limited_by: str | None
    trials: list[TrialRow]


class Skipped(TypedDict):
    """A workload that the model refused."""

    name: str
    length: int
    reason: str


class Environment(TypedDict):
    """The machine of the generator."""

    created: str
    command: str
    cpu: str
    usable_cores: int
    cores: int | None
    memory_gib: float
    load_average_1min_at_start: float
    platform: str
    python: str
    packages: dict[str, str]


class MeasuredModel(TypedDict):
    """The measured model, and its versions that answered."""

    name: str
    version: int
    signature: str
    requests_before: int | None
    versions: NotRequired[list[int]]
    in_process: NotRequired[dict[str, Any]]


class BenchmarkReport(TypedDict):
    """A whole benchmark."""

    schema: int
    tool: str
    target: str
    model: MeasuredModel
    scenario: str | None
    settings: dict[str, Any]
    environment: Environment
    load_average_1min_at_end: float
    points: list[Point]
    found_rates: list[Search]
    skipped: list[Skipped]
    ended_early: str | None

"""The report, as report.json holds it. Milliseconds where a name ends with `_ms`; None where there is no figure."""

from typing import Any, NotRequired, TypedDict

# By "min", "mean", "max" and the percentiles' names; None where too few samples came to quote it.
LatencyMs = dict[str, float | None]


class ErrorCount(TypedDict):
    """The failures of one status: how many, when the first came (seconds after the start), and its message."""

    count: int
    first_s: float | None
    message: str


class Generator(TypedDict):
    """How busy the generator was: its share of a core, the share of time it waited for one, whether it was on time."""

    cpu_share: float
    waiting_share: float
    kept_up: bool


class SilenceFound(TypedDict):
    """The longest stretch in which requests waited and none was answered, and whether the server had stalled."""

    seconds: float
    began: float
    stalled: bool


class Timeline(TypedDict):
    """How many requests ended in each step of the run, answered or failed."""

    step_s: float
    answered: list[int]
    failed: list[int]


class Window(TypedDict):
    """One of the equal stretches of a run, with its latencies as an HdrHistogram of microseconds."""

    latency_ms: LatencyMs
    hdr_microseconds: str


class Figures(TypedDict):
    """The figures of a point, and the verdicts on them."""

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
    windows: list[Window]


class Answers(TypedDict):
    """What was found of the answers: whether they were checked, how many were wrong, the largest difference."""

    checked: bool
    wrong: int
    worst_difference: float | None


class Checked(TypedDict):
    """The answers of a point, and how many came from each version; None where only the versions are known."""

    answers: Answers
    versions: dict[str, int | None]


class InProcessFigures(TypedDict):
    """The same requests answered by the model in a process of its own, and how many served answers differ from it."""

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
    """One rate that a search tried; `limit` says what failed, "" where it passed."""

    rate: float
    limit: str
    requests: int
    offered_per_second: float | None
    requests_per_second: float
    within_bound: float | None
    latency_ms: LatencyMs
    valid: bool


class Search(TypedDict):
    """What a search for the highest rate found."""

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


class Model(TypedDict):
    """The model that was measured, and the versions of it that answered."""

    name: str
    version: int
    signature: str
    requests_before: int | None
    versions: NotRequired[list[int]]
    in_process: NotRequired[dict[str, Any]]


class Report(TypedDict):
    """A whole benchmark."""

    schema: int
    tool: str
    target: str
    model: Model
    scenario: str | None
    settings: dict[str, Any]
    environment: Environment
    load_average_1min_at_end: float
    points: list[Point]
    found_rates: list[Search]
    skipped: list[Skipped]
    ended_early: str | None

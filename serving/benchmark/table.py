"""The report as console text and CSV."""

import csv
import io
from collections.abc import Mapping
from typing import Any

import grpc

from serving.benchmark.find_rate import WITHIN
from serving.benchmark.schema import BenchmarkReport, InProcessFigures, Point, Search
from serving.benchmark.statistics import PERCENTILES, percentile_name, samples_needed
from serving.client.errors import hint_for

COLUMNS = [percentile_name(percent) for percent in PERCENTILES]
_BREAKDOWN = {
    "client_encode": "client encode",
    "wire": "wire",
    "server_other": "server, other",
    "server_queue": "server queue",
    "server_compute": "server compute",
    "client_decode": "client decode",
}


# From this share of time without a CPU on, a remark mentions other work on the machine.
_BUSY_MACHINE = 0.05
_LONGEST_MESSAGE = 160


def figure(value: float | None) -> str:
    """Formats a number with three significant digits; '-' for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def shortened(message: str) -> str:
    """Cuts a long message."""
    return message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE].rstrip() + " ..."


def verdict(point: Point) -> str:
    """Returns a point's warnings, and whether it is stable."""
    words = []
    if not point["valid"]:
        words.append(f"INVALID: {', '.join(point['invalid_because'])}")
    if point["errors"]:
        words.append(", ".join(f"{error['count']:,} {status}" for status, error in point["errors"].items()))
    if point["answers"]["wrong"]:
        words.append(f"{point['answers']['wrong']:,} WRONG ANSWERS")
    if len(point["versions"]) > 1:
        words.append(f"VERSIONS {' and '.join(point['versions'])}")
    if point["silence"]["stalled"]:
        # A server that refuses meanwhile does not stand still.
        refused = set(point["errors"]) - {grpc.StatusCode.DEADLINE_EXCEEDED.name}
        words.append(f"{'NO ANSWERS FOR' if refused else 'STALLED'} {point['silence']['seconds']:.1f} s")
    elif point["answered"]:
        words.append({True: "stable", False: "UNSTABLE", None: "too few samples"}[point["stable"]])
    return ", ".join(words)


def eventful(point: Point) -> bool:
    """Returns whether requests failed, the server stalled or versions changed."""
    failed = point["requests"] - point["answered"]
    return bool(failed or point["silence"]["stalled"] or len(point["versions"]) > 1)


def protocols(report: BenchmarkReport) -> str:
    """Names the protocols of the report's points."""
    names = {"grpc": "gRPC", "rest": "REST"}
    return " and ".join(names[one] for one in dict.fromkeys(point["protocol"] for point in report["points"]))


def versions(report: BenchmarkReport) -> str:
    """Names the model versions that answered."""
    numbers = report["model"]["versions"] or [report["model"]["version"]]
    return f"version{'s' * (len(numbers) > 1)} {' and '.join(map(str, numbers))}"


def latency_rows(report: BenchmarkReport) -> list[list[str]]:
    """Returns a heading and a row of milliseconds per point."""
    bounded = any(point["within_bound"] is not None for point in report["points"])
    batched = any(point["batch"] > 1 for point in report["points"])
    in_process = any(point["in_process"] for point in report["points"])
    heading = ["workload", "arrival", "requests", *COLUMNS, "max", "req/s"]
    heading += ["rows/s"] * batched + ["in bound"] * bounded + ["in-process p50"] * in_process + ["verdict"]
    rows = [heading]
    for point in report["points"]:
        workload, arrival = point["name"].split(", ", 1)
        latency = point["latency_ms"]
        row = [workload, arrival, str(point["requests"]), *(figure(latency[name]) for name in (*COLUMNS, "max"))]
        row.append(figure(point["requests_per_second"]))
        if batched:
            row.append(figure(point["examples_per_second"]))
        if bounded:
            row.append("-" if point["within_bound"] is None else f"{point['within_bound']:.1%}")
        if in_process:
            row.append(figure(point["in_process"] and point["in_process"]["latency_ms"]["p50"]))
        rows.append([*row, verdict(point)])
    return rows


def breakdown_rows(report: BenchmarkReport) -> list[list[str]]:
    """Returns the mean milliseconds of a request's parts."""
    points = report["points"]
    known = [part for part in _BREAKDOWN if any(point["breakdown_ms"][part] is not None for point in points)]
    rows = [["mean ms of", "all", *(_BREAKDOWN[part] for part in known)]]
    for point in points:
        parts = [figure(point["breakdown_ms"][part]) for part in known]
        rows.append([point["name"], figure(point["latency_ms"]["mean"]), *parts])
    return rows


def first_call_rows(report: BenchmarkReport) -> list[list[str]]:
    """Returns each workload's first two calls and warm median."""
    seen, rows = set(), [["workload", "first call", "second call", "warm p50"]]
    for point in report["points"]:
        workload = point["name"].split(", ", 1)[0]
        if workload not in seen:
            seen.add(workload)
            warm = point["latency_ms"]["p50"]
            rows.append([workload, *map(figure, (point["first_call_ms"], point["second_call_ms"], warm))])
    return rows


def scenario_result(point: Point, scenario: str) -> str:
    """Returns MLPerf Inference's figure for the scenario."""
    latency = point["latency_ms"]
    if scenario == "single_stream":
        return f"{point['name']}: single stream, p90 {figure(latency['p90'])} ms"
    if scenario == "offline":
        return f"{point['name']}: offline, {figure(point['examples_per_second'])} rows/s"
    within = point["within_bound"] or 0.0
    met = "met" if within >= WITHIN and point["valid"] else "NOT met"
    return f"{point['name']}: server, p99 bound {met} ({within:.2%} within it{few_arrivals(point['requests'])})"


def few_arrivals(requests: int) -> str:
    """Returns a note if requests are too few for a p99."""
    needed = samples_needed(99.0)
    return f", from {requests} requests where a p99 takes {needed:,}" if requests < needed else ""


def remarks(report: BenchmarkReport) -> list[str]:
    """Returns sentences to print with the figures."""
    lines = [f"skipped {skip['name']}: {shortened(skip['reason'])}" for skip in report["skipped"]]
    if report["ended_early"]:
        lines.append(f"ENDED EARLY, points are missing: {shortened(report['ended_early'])}")
    if report["scenario"]:
        lines += [scenario_result(point, report["scenario"]) for point in report["points"]]
    lines += [search_result(search) for search in report["found_rates"]]
    short = min((point["answered"] for point in report["points"]), default=0)
    missing = [percentile_name(percent) for percent in PERCENTILES if short < samples_needed(percent)]
    if missing:
        needs = samples_needed(PERCENTILES[-len(missing)])
        lines.append(f"'-': too few answers to quote ({missing[0]} needs {needs:,}); raise --seconds")
    for point in report["points"]:
        lines += [f"{point['name']}: {remark}" for remark in point_remarks(point)]
    if report["model"]["requests_before"] == 0:
        lines.append("the very first call above was the model's first since it was loaded")
    return lines


def search_result(search: Search) -> str:
    """Describes the result of a search."""
    because = {None: "", "errors": "; above it requests failed", "generator": "; above it the generator fell behind",
               "latency": "; above it the latency gave way"}[search["limited_by"]]  # fmt: skip
    if search["rate"] is None:
        best = "at no rate tried"
    else:
        best = f"up to {figure(search['rate'])} requests/s offered{few_arrivals(search['requests'])}"
    return f"{search['name']}: p99 within {search['bound_ms']:g} ms {best}{because}"


def point_remarks(point: Point) -> list[str]:
    """Explains a point's verdict, in sentences."""
    lines = []
    if point["in_process"]:
        lines += in_process_remarks(point["in_process"])
    if len(point["versions"]) > 1:
        lines.append(version_remark(point))
    waiting = point["generator"]["waiting_share"]
    if waiting > _BUSY_MACHINE:
        lines.append(f"the generator waited for a CPU {waiting:.0%} of the time: a busy machine")
    if not point["valid"]:
        advice = "" if point["generator"]["kept_up"] else "; free the machine, or send from another"
        lines.append(f"{', '.join(point['invalid_because'])}{advice}")
    if not point["stable"] and point["answered"]:
        lines.append(point["stability"])
    for status, error in point["errors"].items():
        when = "" if error["first_s"] is None else f", the first at {error['first_s']:.1f} s"
        hint = hint_for(grpc.StatusCode[status], error["message"]) if point["protocol"] == "grpc" else ""
        message = shortened(error["message"]) + (f" -- {hint}" if hint else "")
        lines.append(f"{error['count']:,} of {point['requests']:,} requests: {status}{when}: {message}")
    return lines


def in_process_remarks(in_process: InProcessFigures) -> list[str]:
    """Compares served and in-process answers, in sentences."""
    if in_process["differing_answers"]:
        return [f"{in_process['differing_answers']} served answers are not what the model says in process"]
    if in_process["differing_answers"] is None and in_process["served_versions"]:
        served = " and ".join(map(str, in_process["served_versions"]))
        return [f"answers of version {served} were not compared with the model in process"]
    return []


def version_remark(point: Point) -> str:
    """Names the versions that answered."""
    counts = point["versions"]
    if None in counts.values():
        return f"versions {' and '.join(counts)} answered: a swap in the middle; answers were not compared"
    answered = ", ".join(f"version {version} answered {count:,}" for version, count in counts.items())
    return f"{answered} requests: a swap in the middle; answers were compared within their version"


def console_text(report: BenchmarkReport) -> str:
    """Returns the report for a terminal."""
    parts = [align(latency_rows(report)), align(first_call_rows(report))]
    if any(point["breakdown_ms"]["wire"] is not None for point in report["points"]):
        parts.append(align(breakdown_rows(report)))
    parts.append("\n".join(remarks(report)))
    return "\n\n".join(filter(None, parts))


def word_columns(rows: list[list[str]]) -> list[bool]:
    """Returns which columns contain words."""
    columns = list(zip(*rows[1:], strict=True))
    return [i == 0 or not any(cell[:1].isdigit() or cell == "-" for cell in column) for i, column in enumerate(columns)]


def align(rows: list[list[str]]) -> str:
    """Aligns words left and figures right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    words = word_columns(rows)
    lines = [
        "  ".join(
            cell.ljust(width) if word else cell.rjust(width)
            for cell, width, word in zip(row, widths, words, strict=True)
        )
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def to_csv(report: BenchmarkReport) -> str:
    """Returns the report as CSV, one row per point."""
    rows = [
        {
            **_some(point, "length", "unit", "batch", "protocol", "arrival", "clients", "rate", "offered_per_second"),
            **_some(point, "requests", "answered"),
            **{f"{name}_ms": value for name, value in point["latency_ms"].items()},
            **_some(point, "requests_per_second", "examples_per_second", "goodput_per_second", "within_bound"),
            "first_call_ms": point["first_call_ms"],
            **{f"{name}_mean_ms": value for name, value in point["breakdown_ms"].items()},
            "in_process_p50_ms": point["in_process"] and point["in_process"]["latency_ms"]["p50"],
            "errors": sum(error["count"] for error in point["errors"].values()),
            "wrong_answers": point["answers"]["wrong"],
            "versions": " ".join(point["versions"]),
            "longest_silence_s": point["silence"]["seconds"],
            **_some(point, "valid", "stable"),
        }
        for point in report["points"]
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _some(point: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: point[name] for name in names}

"""The report as console text and CSV."""

import csv
import io
from typing import Any

import grpc

from serving.benchmark.statistics import PERCENTILES, percentile_name, samples_needed
from serving.client.errors import hint_for

COLUMNS = [percentile_name(percent) for percent in PERCENTILES]
_LONGEST_MESSAGE = 160
_LIMITS = {
    None: "",
    "errors": "; above it requests failed",
    "generator": "; above it the generator fell behind",
    "latency": "; above it the latency gave way",
}


def figure(value: float | None) -> str:
    """Formats a number with three significant digits; '-' for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def title(report: dict[str, Any]) -> str:
    """Names the model and the versions that answered."""
    numbers = report["model"]["versions"] or [report["model"]["version"]]
    return f"{report['model']['name']}, version{'s' * (len(numbers) > 1)} {' and '.join(map(str, numbers))}"


def verdict(point: dict) -> str:
    """Returns a point's warnings, and whether it is stable."""
    words = []
    if not point["valid"]:
        words.append(f"INVALID: {', '.join(point['invalid_because'])}")
    words += [f"{error['count']:,} {status}" for status, error in point["errors"].items()]
    if point["wrong_answers"]:
        words.append(f"{point['wrong_answers']:,} WRONG ANSWERS")
    if len(point["versions"]) > 1:
        words.append(f"VERSIONS {' and '.join(map(str, point['versions']))}")
    if point["stalled"]:
        words.append(f"STALLED {point['longest_silence_s']:.1f} s")
    elif point["answered"]:
        words.append({True: "stable", False: "UNSTABLE", None: "too few samples"}[point["stable"]])
    return ", ".join(words)


def latency_rows(report: dict[str, Any]) -> list[list[str]]:
    """Returns a heading and a row of milliseconds per point."""
    bounded = report["settings"]["bound_ms"] > 0
    batched = any(point["batch"] > 1 for point in report["points"])
    in_process = any(point["in_process"] for point in report["points"])
    heading = ["workload", "arrival", "first call", "requests", *COLUMNS, "max", "req/s"]
    heading += ["rows/s"] * batched + ["in bound"] * bounded + ["in-process p50"] * in_process + ["verdict"]
    rows = [heading]
    for point in report["points"]:
        workload, arrival = point["name"].split(", ", 1)
        latency, within = point["latency_ms"], point["within_bound"]
        row = [workload, arrival, figure(point["first_call_ms"]), str(point["requests"])]
        row += [
            figure(value) for value in (*(latency[name] for name in (*COLUMNS, "max")), point["requests_per_second"])
        ]
        row += [figure(point["examples_per_second"])] * batched
        row += ["-" if within is None else f"{within:.1%}"] * bounded
        row += [figure(point["in_process"] and point["in_process"]["latency_ms"]["p50"])] * in_process
        rows.append([*row, verdict(point)])
    return rows


def remarks(report: dict[str, Any]) -> list[str]:
    """Returns sentences to print with the figures."""
    lines = [f"skipped {skip['name']}: {_shortened(skip['reason'])}" for skip in report["skipped"]]
    if report["ended_early"]:
        lines.append(f"ENDED EARLY, points are missing: {_shortened(report['ended_early'])}")
    lines += [search_result(search) for search in report["found_rates"]]
    short = min(point["answered"] for point in report["points"])
    missing = [percent for percent in PERCENTILES if short < samples_needed(percent)]
    if missing:
        needs = f"{percentile_name(missing[0])} needs {samples_needed(missing[0]):,}"
        lines.append(f"'-': too few answers to quote ({needs}); raise --seconds")
    return lines + [f"{point['name']}: {remark}" for point in report["points"] for remark in point_remarks(point)]


def search_result(search: dict) -> str:
    """Describes the result of a search."""
    best = "at no rate tried"
    if search["rate"] is not None:
        best = f"up to {figure(search['rate'])} requests/s offered"
        if search["requests"] < samples_needed(99.0):
            best += f", from {search['requests']} requests where a p99 takes {samples_needed(99.0):,}"
    return f"{search['name']}: p99 within {search['bound_ms']:g} ms {best}{_LIMITS[search['limited_by']]}"


def point_remarks(point: dict) -> list[str]:
    """Explains a point's verdict, in sentences."""
    lines = []
    if point["in_process"] and (differing := point["in_process"]["differing_answers"]):
        lines.append(f"{differing} served answers are not what the model says in process; is it the served version?")
    if len(point["versions"]) > 1:
        lines.append("versions were swapped in the middle; answers were compared within their version")
    if point["not_compared"]:
        lines.append(f"{point['not_compared']:,} answers that differ were too many to compare")
    if not point["generator"]["kept_up"]:
        lines.append("the load generator was too slow; free the machine, or send from another")
    if not point["stable"] and point["answered"]:
        lines.append(point["stability"])
    for status, error in point["errors"].items():
        hint = hint_for(grpc.StatusCode[status], error["message"])
        message = _shortened(error["message"]) + (f" -- {hint}" if hint else "")
        count = f"{error['count']:,} of {point['requests']:,} requests"
        lines.append(f"{count}: {status}, the first at {error['first_s']:.1f} s: {message}")
    return lines


def _shortened(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE].rstrip() + " ..."


def console_text(report: dict[str, Any]) -> str:
    """Returns the report for a terminal: words left, figures right."""
    columns = []
    for heading, *cells in zip(*latency_rows(report), strict=True):
        width = max(map(len, (heading, *cells)))
        align = str.ljust if heading in ("workload", "arrival", "verdict") else str.rjust
        columns.append([align(cell, width) for cell in (heading, *cells)])
    lines = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
    return "\n".join([*lines, *([""] + remarks(report) if remarks(report) else [])])


def to_csv(report: dict[str, Any]) -> str:
    """Returns the report as CSV, one row per point."""
    rows = [_csv_row(point) for point in report["points"]]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


_CSV = (
    *("length", "unit", "batch", "arrival", "clients", "rate", "requests", "answered", "requests_per_second"),
    *("examples_per_second", "offered_per_second", "goodput_per_second", "within_bound", "first_call_ms"),
    *("wrong_answers", "longest_silence_s", "valid", "stable"),
)


def _csv_row(point: dict) -> dict[str, Any]:
    in_process = point["in_process"] or {"first_call_ms": None, "latency_ms": {"p50": None}}
    return {
        **{name: point[name] for name in _CSV},
        **{f"{name}_ms": value for name, value in point["latency_ms"].items()},
        "in_process_p50_ms": in_process["latency_ms"]["p50"],
        "in_process_first_call_ms": in_process["first_call_ms"],
        "errors": sum(error["count"] for error in point["errors"].values()),
        "versions": " ".join(map(str, point["versions"])),
    }

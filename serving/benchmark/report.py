"""A report's files and its console text, and the description of the machine."""

import csv
import io
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from serving.benchmark.load import PERCENTILES, samples_needed
from serving.client.errors import hint_for
from tfrecords.base import files
from tfrecords.base.machine.cpu import cores

_PACKAGES = ("albert-tf", "grpcio", "protobuf", "numpy", "tensorflow", "keras", "tensorflow-text")
_LONGEST_MESSAGE = 160
_LIMITS = {
    None: "",
    "errors": "; above it requests failed",
    "generator": "; above it the generator fell behind",
    "latency": "; above it the latency gave way",
}
_CSV = (
    *("length", "unit", "batch", "arrival", "clients", "rate", "requests", "answered", "requests_per_second"),
    *("examples_per_second", "offered_per_second", "within_bound", "first_call_ms", "valid"),
)


def environment() -> dict[str, Any]:
    """Describes CPU, memory, load, versions and the command line."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
        "cpu": _cpu_name(),
        "usable_cores": cores(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_average_1min_at_start": round(os.getloadavg()[0], 2),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def write_report(report: dict[str, Any], output_dir: Path) -> list[str]:
    """Writes report.json, report.csv and latency.png; returns their names."""
    contents = {"report.csv": to_csv(report).encode(), "latency.png": plot_latency(report)}
    files.write_json(output_dir / "report.json", report)
    for name, content in contents.items():
        files.write(output_dir / name, content)
    return ["report.json", *contents]


def to_csv(report: dict[str, Any]) -> str:
    """Returns the report as CSV, one row per point."""
    rows = []
    for point in report["points"]:
        inside = point["in_process"] or {"first_call_ms": None, "latency_ms": {"p50": None}}
        rows.append({
            **{name: point[name] for name in _CSV},
            **{f"{name}_ms": value for name, value in point["latency_ms"].items()},
            "in_process_p50_ms": inside["latency_ms"]["p50"],
            "in_process_first_call_ms": inside["first_call_ms"],
            "errors": sum(error["count"] for error in point["errors"].values()),
        })  # fmt: skip
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def console_text(report: dict[str, Any]) -> str:
    """Returns the report for a terminal: words left, figures right."""
    columns = []
    for heading, *cells in zip(*latency_rows(report), strict=True):
        width = max(map(len, (heading, *cells)))
        align = str.ljust if heading in ("workload", "arrival", "verdict") else str.rjust
        columns.append([align(cell, width) for cell in (heading, *cells)])
    lines = ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]
    return "\n".join([*lines, *([""] + remarks(report) if remarks(report) else [])])


def latency_rows(report: dict[str, Any]) -> list[list[str]]:
    """Returns a heading and a row of milliseconds per point."""
    bounded = report["settings"]["bound_ms"] > 0
    batched = any(point["batch"] > 1 for point in report["points"])
    in_process = any(point["in_process"] for point in report["points"])
    heading = ["workload", "arrival", "first call", "requests", *PERCENTILES, "max", "req/s"]
    rows = [heading + ["rows/s"] * batched + ["in bound"] * bounded + ["in-process p50"] * in_process + ["verdict"]]
    for point in report["points"]:
        latency, within = point["latency_ms"], point["within_bound"]
        times = [latency[name] for name in (*PERCENTILES, "max")]
        row = [*point["name"].split(", ", 1), figure(point["first_call_ms"]), str(point["requests"])]
        row += [figure(value) for value in (*times, point["requests_per_second"])]
        row += [figure(point["examples_per_second"])] * batched
        row += ["-" if within is None else f"{within:.1%}"] * bounded
        row += [figure(point["in_process"] and point["in_process"]["latency_ms"]["p50"])] * in_process
        rows.append([*row, verdict(point)])
    return rows


def figure(value: float | None) -> str:
    """Formats a number with three significant digits; '-' for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def verdict(point: dict) -> str:
    """Returns a point's warnings."""
    words = [] if point["valid"] else [f"INVALID: {', '.join(point['invalid_because'])}"]
    words += [f"{error['count']:,} {status}" for status, error in point["errors"].items()]
    return ", ".join(words) or "valid"


def remarks(report: dict[str, Any]) -> list[str]:
    """Returns sentences to print with the figures."""
    lines = [f"skipped {skip['name']}: {_shortened(skip['reason'])}" for skip in report["skipped"]]
    if report["ended_early"]:
        lines.append(f"ENDED EARLY, points are missing: {_shortened(report['ended_early'])}")
    lines += [search_result(search) for search in report["found_rates"]]
    short = min(point["answered"] for point in report["points"])
    for name, percent in PERCENTILES.items():
        if short < (needed := samples_needed(percent)):
            lines.append(f"'-': too few answers to quote ({name} needs {needed:,}); raise --seconds")
            break
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
    if not point["generator"]["kept_up"]:
        lines.append("the load generator was too slow; free the machine, or send from another")
    for status, error in point["errors"].items():
        hint = hint_for(grpc.StatusCode[status], error["message"])
        message = _shortened(error["message"]) + (f" -- {hint}" if hint else "")
        count = f"{error['count']:,} of {point['requests']:,} requests"
        lines.append(f"{count}: {status}, the first at {error['first_s']:.1f} s: {message}")
    return lines


def _shortened(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE].rstrip() + " ..."


_MARKERS = {"p50": "o", "p90": "s", "p99": "^", "max": "|"}


def plot_latency(report: dict[str, Any]) -> bytes:
    """Draws percentiles of all points and trials of searches; those with too few answers are left out."""
    # Imported after measuring: a refused target should not wait for matplotlib.
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    from tfrecords.base.plotting import fonts_for, wrapped

    trials = [
        trial for search in report["found_rates"] for trial in sorted(search["trials"], key=lambda trial: trial["rate"])
    ]
    # The best trial of a search is a point as well.
    points = list({point["name"]: point for point in (*trials, *report["points"])}.values())
    title = f"{report['model']['name']}, version {report['model']['version']}"
    names = [wrapped(point["name"], 60) for point in points]
    places = np.arange(len(points))
    with fonts_for([title, *names]):
        figure = Figure(figsize=(8, 1.5 + 0.3 * len(points)), layout="constrained")
        axes = figure.subplots()
        for name, marker in _MARKERS.items():
            axes.plot(_values([point["latency_ms"] for point in points], name), places, marker, label=name)
        inside = [point["in_process"]["latency_ms"] if point["in_process"] else {} for point in points]
        if any(inside):
            axes.plot(_values(inside, "p50"), places, "x", label="p50 in process")
        if bound := report["settings"]["bound_ms"]:
            axes.axvline(bound, color="gray", linestyle=":", label="bound")
        axes.set(xlabel="latency, ms", xscale="log", title=title)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_yticks(places, names)
        axes.set_ylim(len(points) - 0.5, -0.5)
        axes.grid(alpha=0.25)
        figure.legend(loc="outside right upper")
        image = io.BytesIO()
        figure.savefig(image, format="png", dpi=150)
    return image.getvalue()


def _values(latencies: list[dict], name: str) -> list[float]:
    return [np.nan if latency.get(name) is None else latency[name] for latency in latencies]

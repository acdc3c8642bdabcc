"""Writes a report's files, and describes the machine."""

import base64
import json
import os
import platform
import sys
from datetime import UTC, datetime
from html import escape
from importlib import metadata
from pathlib import Path

from serving.benchmark import table
from serving.benchmark.schema import BenchmarkReport, Environment
from tfrecords.base.files import replacing, write_json

_PACKAGES = ("albert-tf", "grpcio", "protobuf", "numpy", "hdrhistogram", "tensorflow", "keras", "tensorflow-text")


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0; }
h2 { font-size: 1.15em; margin-top: 2em; }
p.under { color: #666; margin-top: 0; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
table { display: block; overflow-x: auto; }
th, td { padding: 3px 9px; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
.word { text-align: left; }
tr.bad td { background: #fde8e6; }
figure { margin: 1.5em 0; }
img { max-width: 760px; width: 100%; }
pre { background: #f6f6f6; padding: 1em; overflow-x: auto; }
"""
_CAPTIONS = {
    "latency.png": "Latency against length. Shaded: 95 % bootstrap intervals.",
    "throughput.png": "Latency against throughput.",
    "distribution.png": "Latency at every percentile; the tail is drawn out.",
    "timeline.png": "Points in which something happened: answers and failures a second. Gaps: nothing came.",
    "breakdown.png": "Mean latency by part, by the server's own metrics.",
}


def environment() -> Environment:
    """Describes CPU, memory, load, versions and the command line."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
        "cpu": _cpu_name(),
        "usable_cores": len(os.sched_getaffinity(0)),
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


def write_report(report: BenchmarkReport, output_dir: Path) -> list[str]:
    """Writes report.json, report.csv, plots and report.html; returns their names."""
    # Imported after measuring: a refused target should not wait for matplotlib.
    from serving.benchmark.plots import all_plots

    images = all_plots(report)
    files = {"report.csv": table.to_csv(report).encode(), **images, "report.html": to_html(report, images).encode()}
    write_json(output_dir / "report.json", report)
    for name, content in files.items():
        with replacing(output_dir / name) as temporary:
            temporary.write_bytes(content)
    return ["report.json", *files]


def to_html(report: BenchmarkReport, plots: dict[str, bytes]) -> str:
    """Returns the report as one HTML file with plots."""
    model, environment = report["model"], report["environment"]
    under = f"{report['target']}, {environment['created']}, {environment['cpu']}, {environment['usable_cores']} cores"
    bad = [
        bool(point["errors"] or point["answers"]["wrong"] or not point["valid"] or point["silence"]["stalled"])
        for point in report["points"]
    ]
    sections = [
        f"<h1>{escape(model['name'])} {table.versions(report)}: latency over {table.protocols(report)}</h1>",
        f"<p class=under>{escape(under)}</p>",
        "<h2>Latency, milliseconds</h2>" + _table(table.latency_rows(report), bad),
        "<ul>" + "".join(f"<li>{escape(remark)}</li>" for remark in table.remarks(report)) + "</ul>",
        "".join(_image(name, image) for name, image in plots.items()),
        "<h2>First calls, milliseconds</h2>" + _table(table.first_call_rows(report)),
        "<h2>Where the time goes</h2>" + _table(table.breakdown_rows(report)),
        _search_tables(report),
        "<h2>How it was measured</h2>" + _HOW,
        "<h2>Model, machine, settings</h2>" + _details(report),
    ]
    title = escape(f"{model['name']}: latency")
    head = f"<meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{''.join(sections)}</body></html>\n"


_HOW = """<p>Closed loop: each client sends its next request when it has its answer, so a stalled server is asked less
and its stall counts once. Open loop: requests are due at times fixed beforehand, and latency is counted from when a
request was due, not from when it was sent; a run whose generator fell behind is marked invalid. Percentiles are
nearest-rank over the answers that came (errors are counted apart, and a point with over 1 % of them is invalid) and are
quoted only with ten samples beyond them. A server that answers nobody for a second while requests wait has stalled.
Intervals resample windows first, then samples in them.</p>"""


def _table(rows: list[list[str]], bad: list[bool] | None = None) -> str:
    words = table.word_columns(rows)

    def row_html(cells: list[str], tag: str) -> str:
        kinds = [" class=word" if word else "" for word in words]
        return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True))

    body = ""
    for i, row in enumerate(rows[1:]):
        marked = " class=bad" if bad and bad[i] else ""
        body += f"<tr{marked}>{row_html(row, 'td')}</tr>"
    return f"<table><tr>{row_html(rows[0], 'th')}</tr>{body}</table>"


def _image(name: str, image: bytes) -> str:
    data = base64.b64encode(image).decode()
    caption = escape(_CAPTIONS[name])
    return (
        f'<figure><img alt="{caption}" src="data:image/png;base64,{data}"><figcaption>{caption}</figcaption></figure>'
    )


def _search_tables(report: BenchmarkReport) -> str:
    text = ""
    for search in report["found_rates"]:
        rows = [["offered/s", "requests", "answered/s", "p50", "p99", "within bound", "verdict"]]
        for trial in sorted(search["trials"], key=lambda trial: trial["rate"]):
            latency = trial["latency_ms"]
            offered, requests = table.figure(trial["offered_per_second"]), f"{trial['requests']:,}"
            figures = (trial["requests_per_second"], latency["p50"], latency["p99"])
            outcome = f"limited by {trial['limit']}" if trial["limit"] else "met the bound"
            within = f"{trial['within_bound'] or 0:.1%}"
            rows.append([offered, requests, *map(table.figure, figures), within, outcome])
        text += f"<h2>Search: {escape(search['name'])}, p99 within {search['bound_ms']:g} ms</h2>" + _table(rows)
    return text


def _details(report: BenchmarkReport) -> str:
    facts = {name: report[name] for name in ("model", "environment", "settings")}
    return f"<pre>{escape(json.dumps(facts, indent=2, ensure_ascii=False))}</pre>"

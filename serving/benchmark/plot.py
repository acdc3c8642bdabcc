"""The report's plot as PNG: the latencies of every point, one below the other."""

from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from tfrecords.base.plotting import fonts_for, wrapped

_MARKERS = {"p50": "o", "p90": "s", "p99": "^", "max": "|"}


def plot_latency(report: dict[str, Any]) -> bytes:
    """Draws percentiles of all points and trials of searches; those with too few answers are left out."""
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
        image = BytesIO()
        figure.savefig(image, format="png", dpi=150)
    return image.getvalue()


def _values(latencies: list[dict], name: str) -> list[float]:
    return [np.nan if latency.get(name) is None else latency[name] for latency in latencies]

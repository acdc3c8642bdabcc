"""The report's plots as PNG."""

from collections.abc import Callable, Mapping
from io import BytesIO
from itertools import groupby
from typing import cast

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from serving.benchmark.schema import BenchmarkReport, Point
from serving.benchmark.statistics import decode_histogram
from serving.benchmark.table import eventful, protocols, versions
from tfrecords.base.plotting import fonts_for, legend_beside, wrapped

_SIZE = (7.2, 4.4)
_STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "legend.frameon": False,
}
# How percentiles differ: by the share of black (below 0) or of white in the colour, and by the marker.
_QUOTED = {"p50": (-0.4, "o"), "p90": (0.1, "s"), "p99": (0.5, "^")}
# Number of different colours.
_DIFFERENT = 20
# Maximum number of timelines.
_TIMELINES = 8
# A percentile axis that stretches the tail: position -log10(1 - fraction).
_TICKS = {"0": 0.0, "50": 0.5, "90": 0.9, "99": 0.99, "99.9": 0.999, "99.99": 0.9999}


def all_plots(report: BenchmarkReport) -> dict[str, bytes]:
    """Returns PNGs by file name, without empty plots."""
    plots = {
        "latency.png": plot_latency,
        "throughput.png": plot_throughput,
        "distribution.png": plot_distribution,
        "timeline.png": plot_timeline,
        "breakdown.png": plot_breakdown,
    }
    images = {}
    names = [point["name"] for point in report["points"]]
    with plt.style.context(_STYLE), fonts_for([report["model"]["name"], *names]):
        for name, plot in plots.items():
            figure = plt.figure(figsize=_SIZE, layout="constrained")
            if plot(report, figure):
                images[name] = _png(figure)
            plt.close(figure)
    return images


def plot_latency(report: BenchmarkReport, figure: Figure) -> bool:
    """Draws percentiles by length with 95 % intervals; like all plots, returns False if there is nothing to draw."""
    points = [point for point in report["points"] if point["length"] is not None]
    axes = figure.subplots()
    # A search ends at a different rate for every length, but is one line.
    loads = ("batch", "protocol", "arrival") + (() if report["found_rates"] else ("clients", "rate"))
    series = _groups(points, lambda point: tuple(cast(Mapping, point)[name] or 0 for name in loads))
    quoted = _Quoted(axes)
    for colour, members in zip(_colours(), series, strict=False):
        lengths = [point["length"] for point in members]
        load = "at the highest rate found" if report["found_rates"] else _load_label(members[0])
        for name in _QUOTED:
            shade = quoted.draw(name, lengths, members, colour, load)
            if shade is not None:
                low, high = np.array([point["interval_ms"][name] or [np.nan, np.nan] for point in members]).T
                axes.fill_between(lengths, low, high, color=shade, alpha=0.2, linewidth=0, zorder=1)
    _draw_in_process(axes, points)
    if not axes.lines:
        return False
    axes.set(
        xlabel=f"length, {points[0]['unit']}", ylabel="latency, ms", ylim=(0, None), title=_title(report, "Latency")
    )
    axes.set_xticks(sorted({point["length"] for point in points}))
    quoted.explain(figure)
    return True


def _draw_in_process(axes, points: list[Point]) -> None:
    measured = [point for point in points if point["in_process"] and point["batch"] == points[0]["batch"]]
    by_length = {point["length"]: _or_nan(point["in_process"]["latency_ms"]["p50"]) for point in measured}
    if by_length:
        axes.plot(by_length.keys(), by_length.values(), marker="x", color="black", label="in process, p50", zorder=3)


def plot_throughput(report: BenchmarkReport, figure: Figure) -> bool:
    """Draws latency against answers per second."""
    axes = figure.subplots()
    quoted = _Quoted(axes)
    for colour, (label, rows) in zip(_colours(), _curves(report).items(), strict=False):
        rows = sorted(rows, key=lambda row: row["requests_per_second"])
        rates = [row["requests_per_second"] for row in rows]
        for name in ("p50", "p99"):
            quoted.draw(name, rates, rows, colour, label)
    if not axes.lines:
        return False
    bound = report["settings"]["bound_ms"]
    if bound:
        axes.axhline(bound, color="black", linewidth=0.8)
        axes.annotate(f"bound {bound:g} ms", (axes.get_xlim()[0], bound), fontsize=8, va="bottom")
    axes.set(xlabel="answers per second", ylabel="latency, ms", title=_title(report, "Throughput and latency"))
    _log_scale(axes)
    quoted.explain(figure)
    return True


def _curves(report: BenchmarkReport) -> dict[str, list[Point]]:
    curves = {f"{search['name']}, search": search["trials"] for search in report["found_rates"]}
    # A point without answers is not on the curve.
    points = [point for point in report["points"] if point["answered"]]
    for members in _groups(points, lambda point: (point["name"].split(",")[0], point["arrival"])):
        if len(members) > 1:
            curves[f"{members[0]['name'].split(',')[0]}, {members[0]['arrival']}"] = members
    return curves


def plot_distribution(report: BenchmarkReport, figure: Figure) -> bool:
    """Draws latency at every percentile."""
    axes = figure.subplots()
    deepest = 1.0
    for number, (point, colour) in enumerate(zip(report["points"], _colours(), strict=False)):
        values, counts = _merged(point)
        if not len(values):
            continue
        total = counts.sum()
        below = (np.cumsum(counts) - counts / 2) / total
        deepest = max(deepest, float(np.log10(total)))
        dashes = ("-", "--", ":")[number // _DIFFERENT]
        axes.plot(-np.log10(1 - below), values, dashes, color=colour, linewidth=1.4, label=point["name"])
    if not axes.lines:
        return False
    axes.set_xticks([-np.log10(1 - fraction) for fraction in _TICKS.values()], list(_TICKS))
    axes.set(xlabel="percentile", ylabel="latency, ms", xlim=(0, deepest))
    _log_scale(axes)
    axes.set_title(_title(report, "Distribution"))
    legend_beside(figure, *axes.get_legend_handles_labels())
    return True


def plot_timeline(report: BenchmarkReport, figure: Figure) -> bool:
    """Draws answers and failures over time."""
    points = [point for point in report["points"] if point["requests"] and eventful(point)][:_TIMELINES]
    if not points:
        return False
    figure.set_size_inches(_SIZE[0], 0.6 + 1.9 * len(points))
    rows = figure.subplots(len(points), squeeze=False)
    for axes, point in zip(rows[:, 0], points, strict=True):
        step = point["timeline"]["step_s"]
        counts = {"answered": point["timeline"]["answered"], "failed": point["timeline"]["failed"]}
        for (name, ended), colour in zip(counts.items(), ("tab:blue", "tab:red"), strict=True):
            rates = np.array(ended) / step
            # The line has a gap without answers: there is no 0 on a log axis.
            edges = step * np.arange(len(rates) + 1)
            axes.stairs(
                np.where(rates > 0, rates, np.nan), edges, baseline=None, color=colour, label=name, linewidth=1.6
            )
        axes.set(yscale="log", xlim=(0, step * len(rates)), ylabel="a second")
        axes.set_title(wrapped(point["name"], 80), fontsize=9)
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.margins(y=0.15)
    _title_of_figure(figure, _title(report, "Answers over time"))
    legend_beside(figure, *rows[0, 0].get_legend_handles_labels())
    rows[-1, 0].set_xlabel("seconds from the point's start")
    return True


def plot_breakdown(report: BenchmarkReport, figure: Figure) -> bool:
    """Draws mean latency by part."""
    points = [point for point in report["points"] if point["breakdown_ms"]["server_compute"] is not None]
    if not points:
        return False
    figure.set_size_inches(_SIZE[0], 1.6 + 0.42 * len(points))
    axes = figure.subplots()
    left = np.zeros(len(points))
    names = [wrapped(point["name"]) for point in points]
    places = np.arange(len(points))
    for part in ("client_encode", "wire", "server_other", "server_queue", "server_compute", "client_decode"):
        widths = np.array([_or_nan(point["breakdown_ms"][part]) for point in points])
        axes.barh(places, widths, height=0.6, left=left, label=part.replace("_", " "))
        left += np.nan_to_num(widths)
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.margins(y=0.5 / len(points))
    axes.set(xlabel="mean milliseconds")
    # Over the whole figure: long names leave the axes too narrow for it.
    _title_of_figure(figure, _title(report, "Where the time goes"))
    legend_beside(figure, *axes.get_legend_handles_labels())
    return True


# A curve that lacks values would be dots.
class _Quoted:
    def __init__(self, axes):
        self._axes = axes
        self._colours: dict[str, tuple] = {}
        self._drawn: set[str] = set()
        self._left_out: dict[str, list[str]] = {}

    def draw(self, name: str, places: list, points: list[Point], colour: tuple, label: str) -> tuple | None:
        # All curves have a gap at points without answers.
        answered = [point["latency_ms"] for point in points if point["latency_ms"]["p50"] is not None]
        if not answered:
            return None
        if any(latency[name] is None for latency in answered):
            self._left_out.setdefault(name, []).append(label)
            return None
        values = [_or_nan(point["latency_ms"][name]) for point in points]
        shade, marker = _shaded(colour, name), _QUOTED[name][1]
        self._axes.plot(places, values, marker=marker, markersize=5, color=shade, label=label, zorder=3)
        self._colours.setdefault(label, colour)
        self._drawn.add(name)
        return shade

    def explain(self, figure) -> None:
        handles = {label: Line2D([], [], color=colour, linewidth=3) for label, colour in self._colours.items()}
        for line in self._axes.lines:
            # Other lines than those of percentiles.
            if line.get_label() not in self._colours and not line.get_label().startswith("_"):
                handles[line.get_label()] = Line2D([], [], color=line.get_color(), marker=line.get_marker())
        for name, (_, marker) in _QUOTED.items():
            if name in self._drawn:
                handles[name] = Line2D([], [], color=_shaded((0.5, 0.5, 0.5), name), marker=marker, markersize=5)
        legend_beside(figure, list(handles.values()), list(handles))
        if self._left_out:
            # A load of which nothing can be drawn has no colour, but is named here.
            parts = [f"{name} of {'; '.join(labels)}" for name, labels in self._left_out.items()]
            remark = "Left out, since some points have too few answers for it: " + ", ".join(parts)
            figure.supxlabel(wrapped(remark, 110), fontsize=8, x=0.01, ha="left")


def _shaded(colour: tuple, name: str) -> tuple:
    share = _QUOTED[name][0]
    towards = np.full(3, 0.0 if share < 0 else 1.0)
    return tuple((1 - abs(share)) * np.array(colour[:3]) + abs(share) * towards)


def _log_scale(axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")


def _groups(points: list[Point], key: Callable[[Point], tuple]) -> list[list[Point]]:
    return [list(members) for _, members in groupby(sorted(points, key=key), key)]


def _load_label(point: Point) -> str:
    batch = f"batch {point['batch']}, " if point["batch"] > 1 else ""
    rest = "REST, " if point["protocol"] == "rest" else ""
    return batch + rest + point["name"].split(", ", 1)[1]


def _title(report: BenchmarkReport, what: str) -> str:
    return wrapped(f"{what}: {report['model']['name']} {versions(report)} over {protocols(report)}", 80)


def _title_of_figure(figure, title: str) -> None:
    figure.suptitle(title, fontsize=_STYLE["axes.titlesize"], x=0.01, ha="left")


def _merged(point: Point) -> tuple[np.ndarray, np.ndarray]:
    windows = [decode_histogram(window["hdr_microseconds"]) for window in point["windows"]]
    values, counts = (np.concatenate(parts) for parts in zip(*windows, strict=True))
    unique, position = np.unique(values, return_inverse=True)
    return unique, np.bincount(position, weights=counts, minlength=len(unique))


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def _colours() -> list:
    return [plt.get_cmap("tab20")(i) for i in (*range(0, _DIFFERENT, 2), *range(1, _DIFFERENT, 2))] * 3


def _png(figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()

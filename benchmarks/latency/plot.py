"""Latency against length, a colour for each model, its plain export dashed, its int8 one dotted."""

from io import BytesIO

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.ticker import NullLocator, ScalarFormatter


def latency_plot(figures: list[dict]) -> bytes:
    """A PNG: median milliseconds in process, both axes logarithmic, so that equal ratios are equal distances."""
    figure, axes = plt.subplots(figsize=(9.2, 4.8), layout="constrained")
    colours = {}
    for entry in figures:
        colour = colours.setdefault(entry["model"], f"C{len(colours)}")
        lengths = [int(length) for length in entry["lengths"]]
        times = [point["in_process_ms"] for point in entry["lengths"].values()]
        style = "--" if entry["variant"].startswith("plain") else ":" if entry["variant"].endswith("int8") else "-"
        label = f"{entry['model']}, {entry['variant']}"
        axes.plot(lengths, times, style, marker="o", markersize=4, color=colour, label=label)
    axes.set(xscale="log", yscale="log", xlabel="length, tokens", ylabel="median latency in process, ms")
    axes.set_xticks([int(length) for length in figures[0]["lengths"]])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    plt.close(figure)
    return buffer.getvalue()

"""The report's plots."""

from io import BytesIO

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np


def latency_plot(report: dict) -> bytes:
    """PNG of latency against length, a line a percentile, for the first load and batch of the report."""
    points = [point for point in report["points"] if point["length"] is not None]
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    lengths = [point["length"] for point in points]
    for name in ("p50", "p90", "p99"):
        values = [point["latency_ms"][name] for point in points]
        axes.plot(lengths, [np.nan if value is None else value for value in values], marker="o", label=name)
    axes.set(xlabel=f"length, {points[0]['unit']}", ylabel="latency, ms", ylim=(0, None))
    axes.legend()
    return _png(figure)


def _png(figure) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    plt.close(figure)
    return buffer.getvalue()

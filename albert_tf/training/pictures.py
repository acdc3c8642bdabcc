"""Draws confusion matrices."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tfrecords.base import files
from tfrecords.base.plotting import fonts_for, wrapped

# Most classes of a matrix.
_MOST_CLASSES = 20


def draw_classes(path: Path, names: Sequence[str], counts: np.ndarray, *confidence: Sequence[dict[str, float]]) -> None:
    """Draws a confusion matrix, and accuracy by confidence.

    `counts` are int [label, prediction]; `confidence` are tables of `calibration.by_confidence`, now and before
    calibration.
    """
    with fonts_for(names):
        side = max(4.5, 0.42 * min(len(names), _MOST_CLASSES) + 2)
        figure = _figure(side + 5, side)
        matrix, curve = figure.subplots(1, 2, width_ratios=(side, 4))
        _matrix(matrix, names, counts)
        curve.plot((0, 1), (0, 1), color="grey", linestyle=":")
        for name, table in zip(("probabilities", "before calibration"), confidence):
            curve.plot(*([one[key] for one in table] for key in ("confidence", "accuracy")), marker="o", label=name)
        curve.set(xlabel="confidence", ylabel="accuracy", aspect="equal")
        curve.legend(loc="upper left")
        _save(figure, path)


def _figure(width: float, height: float):
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _matrix(axes, names: Sequence[str], counts: np.ndarray) -> None:
    shown = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[:_MOST_CLASSES])
    if len(shown) < len(names):
        axes.set_title(f"the {len(shown)} most frequent of {len(names)} classes", fontsize=10)
    names, shares = [wrapped(names[n], 18) for n in shown], counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    counts, shares = counts[np.ix_(shown, shown)], shares[np.ix_(shown, shown)]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            color = "white" if shares[row, column] > 0.55 else "black"
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=color, fontsize=9)
    is_long = sum(map(len, names)) > 40
    axes.set_xticks(range(len(names)), names, rotation=45 if is_long else 0, ha="right" if is_long else "center")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="prediction", ylabel="label")


def _save(figure, path: Path) -> None:
    with files.replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)

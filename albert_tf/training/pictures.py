"""Plots of predictions against labels."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tfrecords.base import files
from tfrecords.base.plotting import fonts_for, wrapped

# Most classes of a matrix, and most labels with a curve.
_MOST_CLASSES, _MOST_CURVES = 20, 10


def confusion(labels: np.ndarray, predictions: np.ndarray, count: int) -> np.ndarray:
    """Counts rows by label and prediction: int [label, prediction].

    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    return np.bincount(count * labels + predictions, minlength=count * count).reshape(count, count)


def precision_recall(scores: np.ndarray, is_right: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Returns precision and recall [thresholds], the highest threshold first, and the average precision.

    `scores` [rows] are higher for likelier labels; `is_right` [rows] are bool.

    >>> precision, recall, average = precision_recall(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]))
    >>> recall.tolist(), round(average, 3)
    ([0.5, 0.5, 1.0], 0.833)
    """
    order = np.argsort(-scores, kind="stable")
    scores, found = scores[order], np.cumsum(is_right[order])
    # Rows of one score come together.
    last = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1)
    precision, recall = found[last] / (last + 1), found[last] / max(found[-1], 1)
    return precision, recall, float(np.sum(precision * np.diff(recall, prepend=0.0)))


def draw_classes(
    path: Path, names: Sequence[str], counts: np.ndarray, scores: np.ndarray | None, labels: np.ndarray
) -> None:
    """Plots a confusion matrix and, for two classes with scores, their precision-recall curves.

    `counts` are int [label, prediction], `scores` [rows, classes], `labels` [rows].
    """
    with fonts_for(names):
        has_curves = len(names) == 2 and scores is not None
        side = max(4.5, 0.42 * min(len(names), _MOST_CLASSES) + 2)
        figure = _figure(10 if has_curves else side + 1, side)
        panels = np.atleast_1d(figure.subplots(1, 1 + has_curves))
        _matrix(panels[0], names, counts)
        if has_curves:
            curves = {name: (scores[:, n] - scores[:, 1 - n], labels == n) for n, name in enumerate(names)}
            _curves(panels[1], curves)
        _save(figure, path)


def draw_labels(path: Path, names: Sequence[str], scores: np.ndarray, has_label: np.ndarray) -> None:
    """Plots precision-recall curves of the ten most frequent labels; both arrays are [rows, labels]."""
    shown = np.argsort(-has_label.sum(axis=0), kind="stable")[:_MOST_CURVES]
    with fonts_for(names):
        figure = _figure(7)
        axes = figure.subplots()
        if len(shown) < len(names):
            axes.set_title(f"the {len(shown)} most frequent of {len(names)} labels", fontsize=10)
        _curves(axes, {names[n]: (scores[:, n], has_label[:, n]) for n in sorted(shown)})
        _save(figure, path)


def draw_numbers(path: Path, labels: np.ndarray, predictions: np.ndarray) -> None:
    """Plots predicted numbers against labels, both [rows]."""
    figure = _figure(5.5, 5)
    axes = figure.subplots()
    ends = [min(labels.min(), predictions.min()), max(labels.max(), predictions.max())]
    axes.plot(ends, ends, color="0.7", linewidth=1)
    axes.plot(labels, predictions, "o", markersize=3, alpha=0.4)
    _style(axes, "label", "prediction")
    _save(figure, path)


def draw_bars(path: Path, values: Mapping[str, float], label: str) -> None:
    """Draws a horizontal bar for each named value."""
    with fonts_for(values):
        figure = _figure(7, 1.2 + 0.35 * len(values))
        axes = figure.subplots()
        bars = axes.barh([wrapped(name) for name in values], list(values.values()))
        axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=9)
        axes.invert_yaxis()
        _style(axes, label, "")
        _save(figure, path)


def _figure(width: float, height: float = 4.5):
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


def _curves(axes, curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> None:
    for name, (scores, is_right) in curves.items():
        precision, recall, average = precision_recall(scores, is_right)
        axes.plot(np.append(0, recall), np.append(precision[0], precision), label=f"{wrapped(name)} ({average:.3f})")
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02))
    _style(axes, "recall", "precision")
    axes.legend(title="average precision", frameon=False, fontsize=8, title_fontsize=8, loc="lower left")


def _style(axes, x: str, y: str) -> None:
    axes.set(xlabel=x, ylabel=y)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def _save(figure, path: Path) -> None:
    with files.replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)

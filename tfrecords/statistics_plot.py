from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot

from tfrecords.base import files
from tfrecords.statistics import LONGEST_RUN, Statistics


def write_plot(statistics: Statistics, rule: np.ndarray, path: Path) -> None:
    """Plots statistics as a PNG; `rule` has the expected shares of masked spans of 1, 2, ... words."""
    matplotlib.use("Agg")
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7), layout="constrained")
    _histogram(axes[0, 0], statistics.lengths, "How long examples are", "tokens in an example")
    _histogram(axes[0, 1], statistics.predictions, "How many tokens are predicted", "predicted tokens in an example")
    summary = statistics.summary()
    axes[1, 0].bar(range(1, LONGEST_RUN + 1), summary["run_shares"], label="runs of predicted words")
    axes[1, 0].plot(range(1, len(rule) + 1), rule, "k_", markersize=28, label="spans by the rule")
    axes[1, 0].set(xlabel="words", ylabel="share")
    axes[1, 0].set_title("What is predicted together")
    axes[1, 0].legend(frameon=False)
    shares = ("mask_share", "kept_share", "random_share", "label_1_share", "padding_share")
    axes[1, 1].barh([name.removesuffix("_share").replace("_", " ") for name in shares], [summary[n] for n in shares])
    axes[1, 1].set(xlim=(0, 1), xlabel="share", title="Predicted tokens, labels and padding")
    figure.suptitle(f"{summary['examples']:,} examples, {summary['tokens']:,} tokens")
    with files.replacing(path) as temporary:
        figure.savefig(temporary, dpi=120)
    pyplot.close(figure)


def _histogram(axes: Any, counts: np.ndarray, title: str, label: str) -> None:
    axes.hist(np.arange(len(counts)), bins=min(64, len(counts)), weights=counts)
    axes.set(title=title, xlabel=label, ylabel="examples")

"""The picture of a table: every run's held-out loss, a line for each row."""

import io
import statistics
from collections.abc import Sequence

from experiments.results import Result
from experiments.tables import Table
from tfrecords.base.plotting import fonts_for, wrapped


def picture(table: Table, results: Sequence[Result]) -> bytes:
    """Draws the runs' losses as dots, and each row's mean as a bar across them, the first row's as a line through all.

    Returns:
        A PNG.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [row for row in table.rows if any(result.row == row.name for result in results)]
    labels = [wrapped(row.title, 28) for row in rows]
    with fonts_for([table.title, *labels]):
        figure = Figure(figsize=(7.5, 1.2 + 0.45 * len(rows)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for place, row in enumerate(rows):
            losses = [result.masked_lm_loss for result in results if result.row == row.name]
            mean = statistics.fmean(losses)
            if place == 0:
                axes.axvline(mean, color="0.8", zorder=0)
            axes.plot(losses, [place] * len(losses), "o", color=f"C{place % 10}", markersize=5, alpha=0.8)
            axes.plot([mean], [place], "|", color=f"C{place % 10}", markersize=18, markeredgewidth=2)
        axes.set(yticks=range(len(rows)), xlabel="held-out masked-LM loss, nats", title=table.title)
        axes.set_yticklabels(labels)
        axes.invert_yaxis()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", alpha=0.25)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()

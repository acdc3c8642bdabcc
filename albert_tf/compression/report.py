import base64
import dataclasses
import io
import platform
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import keras
import numpy as np
from absl import logging
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from albert_tf.checkpoints.variables import encoder_of
from albert_tf.compression.quality import Quality, embedder_of
from albert_tf.compression.settings import CompressSettings
from albert_tf.compression.start import CompressionPlan, TableRow
from albert_tf.model_files import MODEL_FILE
from albert_tf.tasks.rows import FeatureRows, RaggedArray
from albert_tf.training.batches import predict
from tfrecords.base import files

JSON_FILE, PAGE_FILE = "compress.json", "compress.html"
# Tokens of the timed row, and number of repetitions.
_LENGTH, _TIMES = 32, 30


def milliseconds(model: keras.Model) -> float:
    """Returns the median time to encode one row of at most 32 tokens."""
    length = min(_LENGTH, encoder_of(model).config.max_seq_length)
    ids = np.full(length, 1, np.int32)
    tokens = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
    splits = np.array([0, length])
    rows = FeatureRows({name: RaggedArray(values, splits) for name, values in tokens.items()}, {}, 0)
    embedder, found = embedder_of(model), []
    for _ in range(_TIMES + 3):
        began = time.perf_counter()
        predict(embedder, rows, 1, length)
        found.append(time.perf_counter() - began)
    return 1000 * float(np.median(found[3:]))


def write_report(
    folder: Path, settings: CompressSettings, quality: Quality, cut: CompressionPlan, rows: Sequence[TableRow],
    done: Mapping[str, TableRow], kept: str, speeds: Mapping[str, float],
) -> None:  # fmt: skip
    """Writes compress.json and compress.html into a model folder, and prints a summary.

    `rows` describe models before training: the original, each change alone, all changes. `done` maps each finished
    phase to the compressed model's row; `kept` is the phase whose model is in the folder.
    """
    first, last = rows[0], done[kept]
    report = {
        "model": settings.model,
        "measured": quality.name,
        "metric": quality.metric,
        "cut": cut._asdict(),
        "table": [row._asdict() for row in rows],
        "phases": {name: row._asdict() for name, row in done.items()},
        "kept": kept,
        "parameters": {"as it is": first.parameters, "compressed": last.parameters},
        "file_bytes": (folder / MODEL_FILE).stat().st_size,
        "milliseconds": dict(speeds),
        "machine": f"{platform.machine()}, Keras on {keras.backend.backend()}, a row of {_LENGTH} tokens",
        "settings": dataclasses.asdict(settings),
    }
    files.write_json(folder / JSON_FILE, report)
    with files.replacing(folder / PAGE_FILE) as temporary:
        temporary.write_text(_page(report, quality.metric), encoding="utf-8")
    before, after = first.scores[quality.metric], last.scores[quality.metric]
    print(
        f"{quality.name}: {before:.4f} as it is, {after:.4f} compressed ({after - before:+.4f}); "
        f"{first.parameters:,} parameters to {last.parameters:,} (1 to {first.parameters / last.parameters:.1f}); "
        f"{speeds['as it is']:.1f} ms to {speeds['compressed']:.1f} ms"
    )
    if warning := worse_than_start(rows[-1], last, quality.metric):
        logging.warning(warning)
    if quality.task is None:
        print(
            "likeness is the mean cosine with the whole model's vectors of held-out text; no task was measured: "
            "--task and --data_dir name one"
        )


def worse_than_start(start: TableRow, trained: TableRow, metric: str) -> str:
    """Returns a warning if training made a compressed model worse, or "".

    >>> worse_than_start(TableRow("cut", 10, {"f1": 0.5}), TableRow("distilled", 10, {"f1": 0.75}), "f1")
    ''
    """
    before, after = start.scores[metric], trained.scores[metric]
    if after >= before:
        return ""
    return (
        f"training made the model worse: {metric} {before:.4f} without training, {after:.4f} after it; train longer "
        "(--num_train_steps), lower --learning_rate or give more --text, or keep the untrained model: "
        "--num_train_steps=0"
    )


def _page(report: dict[str, Any], metric: str) -> str:
    picture = base64.b64encode(_picture(report, metric)).decode()
    rows = _rows(report)
    names = [metric, *(name for name in rows[0]["scores"] if name != metric)]
    head = "".join(f"<th>{escape(name)}</th>" for name in ("", "", "parameters", names[0], "lost", *names[1:]))
    first, last, speeds = rows[0], _kept(report), list(report["milliseconds"].values())
    lines = ""
    for number, row in enumerate(rows, 1):
        scores = [f"{row['scores'].get(name, float('nan')):.4f}" for name in names]
        scores.insert(1, f"{rows[0]['scores'][metric] - row['scores'][metric]:.4f}")
        cells = "".join(f"<td>{cell}</td>" for cell in (f"{row['parameters']:,}", *scores))
        kind = " class=kept" if row is last else ""
        lines += f"<tr{kind}><td>{number}</td><td class=word>{escape(row['title'])}</td>{cells}</tr>"
    return (
        f"<!doctype html><meta charset=utf-8><title>{escape(report['model'])}</title><style>{_STYLE}</style>"
        f"<h1>{escape(Path(report['model']).name)}, compressed</h1>"
        f"<p>{first['parameters']:,} parameters to {last['parameters']:,}; {escape(report['measured'])} "
        f"{first['scores'][metric]:.4f} to {last['scores'][metric]:.4f}; {speeds[0]:.1f} ms to {speeds[-1]:.1f} ms "
        f"({escape(report['machine'])})</p>"
        f'<img alt="size against quality" src="data:image/png;base64,{picture}">'
        f"<div class=wide><table><tr>{head}</tr>{lines}</table></div>"
    )


def _rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [*report["table"], *list(report["phases"].values())[1:]]


def _kept(report: dict[str, Any]) -> dict[str, Any]:
    return report["table"][-1] if report["kept"] == "start" else report["phases"][report["kept"]]


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 900px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 9px; border-bottom: 1px solid #ddd; text-align: right; }
.word { text-align: left; }
.kept { font-weight: bold; }
.wide { overflow-x: auto; }
img { width: 100%; }
"""


def _picture(report: dict[str, Any], metric: str) -> bytes:
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    sizes, times = figure.subplots(1, 2, sharey=True, width_ratios=[2, 1])
    rows, path = _rows(report), len(report["phases"])
    points = [(row["parameters"] / 1e6, row["scores"][metric]) for row in rows]
    sizes.plot(*zip(*points[:-path]), "o", color="0.6", markersize=5)
    sizes.plot(*zip(*points[-path:]), "o-", color="C0", markersize=5)
    for number, point in enumerate(points, 1):
        sizes.annotate(str(number), point, (5, 3), textcoords="offset points", fontsize=9)
    (name, before), (other, after) = report["milliseconds"].items()
    scores = (rows[0]["scores"][metric], _kept(report)["scores"][metric])
    for label, value, score, color in ((name, before, scores[0], "0.6"), (other, after, scores[1], "C0")):
        times.plot(value, score, "o", color=color, markersize=5)
        times.annotate(label, (value, score), (-6, 0), textcoords="offset points", ha="right", va="center")
    sizes.set(xlabel="parameters, millions", ylabel=metric)
    times.set(xlabel=f"milliseconds, one row of {_LENGTH} tokens")
    sizes.set_xlim(0, 1.08 * max(size for size, _ in points))
    times.set_xlim(0, 1.15 * max(before, after))
    for axes in (sizes, times):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()

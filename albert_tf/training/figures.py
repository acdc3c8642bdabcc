"""What an evaluation says besides its scores: baseline, interval, figures of each class, accuracy by confidence."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.tasks.metrics import CORRELATIONS
from albert_tf.tasks.multilabel import MultilabelTask
from albert_tf.tasks.rows import FeatureRows
from albert_tf.tasks.task import Task
from albert_tf.training.calibration import by_confidence, calibration_error, choices_of
from albert_tf.training.pictures import draw_classes
from albert_tf.training.preparation import Split

# With fewer rows, chance moves an accuracy by some points.
_FEW = 1000
# Of more classes, the picture and the JSON file have the figures.
_MOST_PRINTED = 8


def wilson(share: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """Returns the 95 % interval of a share of `count` rows (Wilson 1927).

    >>> [round(bound, 3) for bound in wilson(1.0, 16)]
    [0.806, 1.0]
    """
    middle, half = share + z * z / (2 * count), z * np.sqrt(share * (1 - share) / count + (z / count) ** 2 / 4)
    low, high = ((middle + side) / (1 + z * z / count) for side in (-half, half))
    return float(low), min(1.0, float(high))


def figures_of(task: Task, split: Split, outputs: Sequence[Any], temperature: float, picture: Path) -> dict[str, Any]:
    """Returns accuracy by confidence, and of classes precision, recall, F1 and confusion, which is also drawn.

    `temperature` is what the model's logits were divided by. Several labels a text have no confusion.
    """
    answered = task.answered(*split[1:], outputs)
    if not answered or not len(answered[0].right):
        return {}
    logits, right, _ = choices_of(answered)
    tables = [by_confidence(logits * of, right) for of in (1.0, temperature)]
    found: dict[str, Any] = dict(zip(("ece", "ece_before"), map(calibration_error, tables)))
    found["by_confidence"] = tables[0]
    if isinstance(task, MultilabelTask):
        given, there = task.predictions(outputs), task.indicators(split.examples)
    else:
        given, there = np.eye(len(task.labels), dtype=int)[[logits.argmax(axis=1), right]]
        found |= {"labels": list(task.labels), "confusion": (there.T @ given).tolist()}
        draw_classes(picture, task.labels, there.T @ given, *tables)
    counts = zip((given * there).sum(axis=0), given.sum(axis=0), there.sum(axis=0))
    found["classes"] = {
        name: {"precision": hits / max(of, 1), "recall": hits / max(count, 1), "f1": 2 * hits / max(of + count, 1)}
        for name, (hits, of, count) in zip(task.labels, np.array(list(counts)).tolist())
    }
    return found


def lines_of(report: dict[str, Any]) -> Iterator[str]:
    """Yields the lines that show `rows`, `metrics` and what `figures_of` returned."""
    if "accuracy" in report["metrics"] and report["rows"] < _FEW:
        low, high = wilson(report["metrics"]["accuracy"], report["rows"])
        yield f"accuracy of so few rows: from {low:.3f} to {high:.3f} (95 % interval)"
    classes, confusion = report.get("classes", {}), report.get("confusion")
    first = max(map(len, ("label", *classes)))
    if 0 < len(classes) <= _MOST_PRINTED:
        names = [f"{name:>6}" for name in classes] if confusion else []
        yield " ".join([f"{'label':{first}} precision  recall      F1", *["  predicted:"] * bool(names), *names])
        for name, one, row in zip(classes, classes.values(), confusion or [[]] * len(classes)):
            cells = [f"{count:>{len(of)}}" for of, count in zip(names, row)]
            shown = f"{name:{first}} {one['precision']:9.3f} {one['recall']:7.3f} {one['f1']:7.3f}"
            yield " ".join([shown, *[" " * 12] * bool(names), *cells])
    if "ece" in report:
        before = f", before the temperature {report['ece_before']:.3f}" * (report["ece"] != report["ece_before"])
        yield f"calibration error {report['ece']:.3f}{before}"
        for one in report["by_confidence"]:
            yield f"confidence {one['confidence']:.2f}: {one['accuracy']:.2f} of {one['count']:,} are right"


def baseline_scores(task: Task, labelled: FeatureRows, split: Split) -> tuple[str, dict[str, float]] | None:
    """Returns the best constant prediction, as text, and its metrics; None if the task has none."""
    found = task.baseline(labelled)
    if found is None:
        return None
    answer, output = found
    return answer, task.score(split.examples, split.rows, [output] * len(split.rows))


def baseline_line(task: Task, labelled: FeatureRows, split: Split, metrics: Mapping[str, float]) -> str:
    """Returns a line that compares a constant prediction's scores with `metrics`; "" without such a prediction."""
    if not (found := baseline_scores(task, labelled, split)):
        return ""
    answer, scores = found
    shown = {name: value for name, value in scores.items() if value or not name.endswith(CORRELATIONS)}
    line = f"baseline: {', '.join(f'{name} {value:.4g}' for name, value in shown.items()) or 'none'} ({answer})"
    if metrics.get(task.main_metric, 1.0) <= scores[task.main_metric]:
        line += "; the model is no better: train longer (--num_train_epochs), or with another --learning_rate"
    return line

"""What an evaluation reports: scores with intervals, figures of each class, accuracy by confidence."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.tasks.metrics import macro_f1, pearson
from albert_tf.tasks.multilabel import MultilabelTask
from albert_tf.tasks.task import Task
from albert_tf.tasks.text_task import TextTask
from albert_tf.training import pictures
from albert_tf.training.calibration import Choices, by_confidence, calibration_error
from albert_tf.training.preparation import Split
from tfrecords.answers.numbers import unit

# With fewer rows, chance moves an accuracy by more than three points.
_FEW = 1000
# Of more classes, those with the lowest F1 are printed, and no confusion matrix.
_MOST_PRINTED = 8


def wilson(share: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """Returns the 95 % interval of a share of `count` rows (Wilson 1927).

    >>> [round(bound, 3) for bound in wilson(1.0, 16)]
    [0.806, 1.0]
    """
    middle = share + z * z / (2 * count)
    half = z * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    low, high = ((middle + sign * half) / (1 + z * z / count) for sign in (-1, 1))
    return max(0.0, float(low)), min(1.0, float(high))


def figures_of(
    task: Task, split: Split, outputs: Sequence[Any], temperature: float = 1.0, picture: Path | None = None
) -> dict[str, Any]:
    """Returns a split's scores and, of classes, precision, recall, F1, confusion and accuracy by confidence.

    `temperature` is what the model's logits were divided by; a confusion matrix is drawn to `picture`.
    """
    found: dict[str, Any] = {"rows": len(split.examples), "metrics": task.score(*split[1:], outputs)}
    if len(split.examples) < _FEW and isinstance(task, TextTask) and "accuracy" in found["metrics"]:
        found["interval"] = wilson(found["metrics"]["accuracy"], len(split.examples))
    if not (decisions := task.decisions(*split[1:], outputs)):
        return found
    logits, labels, _ = Choices.of(decisions)
    found["ece"], found["ece_before"] = (calibration_error(logits * of, labels) for of in (1.0, temperature))
    found["by_confidence"] = by_confidence(logits, labels)
    if task.labels is None:
        return found
    if isinstance(task, MultilabelTask):
        given, right = task.predictions(outputs), task.indicators(split.examples) > 0
        counts = (given & right).sum(axis=0), given.sum(axis=0), right.sum(axis=0)
    else:
        confusion = pictures.confusion(labels, logits.argmax(axis=1), len(task.labels))
        counts = np.diag(confusion), confusion.sum(axis=0), confusion.sum(axis=1)
        found["labels"], found["confusion"] = list(task.labels), confusion.tolist()
        if picture:
            curves = {"before calibration": by_confidence(logits * temperature, labels)} if temperature != 1 else {}
            pictures.draw_classes(picture, task.labels, confusion, curves | {"probabilities": found["by_confidence"]})
    found["classes"] = {name: _of_class(*one) for name, *one in zip(task.labels, *counts)}
    return found


def _of_class(right: int, given: int, there: int) -> dict[str, float]:
    shares = {"precision": right / max(given, 1), "recall": right / max(there, 1)}
    return {name: float(value) for name, value in shares.items()} | {
        "f1": float(2 * right / max(given + there, 1)),
        "rows": int(there),
    }


def compared(task: Task, split: Split, outputs: Sequence[Any], expected: Sequence[Any]) -> dict[str, Any]:
    """Returns how near a model's outputs are to the expected ones.

    Keys: `metrics` and `expected_metrics`; then `changed` labels and their `count`, or `cosine` and `least_cosine` of
    vectors, or the `correlation` of numbers.
    """
    both = outputs, expected
    found: dict[str, Any] = dict(
        zip(("metrics", "expected_metrics"), (_scores(task, split, values) for values in both))
    )
    if task.kind == "pairs":
        one, other = (unit(np.asarray(values, np.float32)) for values in both)
        cosines = np.sum(one * other, axis=-1)
        return found | {"cosine": float(cosines.mean()), "least_cosine": float(cosines.min())}
    if task.kind == "regression":
        return found | {"correlation": pearson(*(np.ravel(values) for values in both))}
    one, other = (_answers(task, split, values) for values in both)
    return found | {"changed": int((one != other).any(axis=1).sum()), "count": len(one)}


def _scores(task: Task, split: Split, outputs: Sequence[Any]) -> dict[str, float]:
    scores = task.score(*split[1:], outputs)
    if "macro_f1" in scores or not (decisions := task.decisions(*split[1:], outputs)):
        return scores
    logits, labels, _ = Choices.of(decisions)
    return scores | {"macro_f1": macro_f1(logits.argmax(axis=1), labels)}


def _answers(task: Task, split: Split, outputs: Sequence[Any]) -> np.ndarray:
    if isinstance(task, MultilabelTask):
        return task.predictions(outputs)
    return Choices.of(task.decisions(*split[1:], outputs)).logits.argmax(axis=1)[:, None]


def compared_line(found: dict[str, Any]) -> str:
    """Returns the line that says what `compared` found."""
    scores = [
        f"{name} {value:.4g} (float32 {found['expected_metrics'][name]:.4g})"
        for name, value in found["metrics"].items()
    ]
    if "changed" in found:
        scores.append(f"{found['changed']:,} of {found['count']:,} labels changed")
    elif "cosine" in found:
        scores.append(f"cosines {found['cosine']:.4f}, at least {found['least_cosine']:.4f}")
    else:
        scores.append(f"correlation {found['correlation']:.5f}")
    return ", ".join(scores)


def lines_of(found: dict[str, Any]) -> Iterator[str]:
    """Yields the lines that show what `figures_of` returned, but for the scores."""
    if interval := found.get("interval"):
        low, high = interval
        yield f"accuracy of {found['rows']} rows: from {low:.3f} to {high:.3f} (95 % interval)"
    classes = found.get("classes", {})
    names = sorted(classes, key=lambda name: classes[name]["f1"])[:_MOST_PRINTED] if classes else ()
    counts = found.get("confusion", ()) if len(classes) <= _MOST_PRINTED else ()
    if len(classes) > _MOST_PRINTED:
        yield f"the {_MOST_PRINTED} of {len(classes)} classes with the lowest F1"
    else:
        names = tuple(classes)
    if names:
        first, widths = max(map(len, ("label", *names))), [max(len(name), 6) for name in names] if counts else []
        heads = "  predicted " + " ".join(f"{name:>{width}}" for name, width in zip(names, widths)) if counts else ""
        yield f"{'label':{first}} precision recall     F1   rows{heads}"
    for place, name in enumerate(names):
        one = classes[name]
        cells = [f"{count:>{width}}" for count, width in zip(counts[place], widths)] if counts else []
        line = f"{name:{first}} {one['precision']:9.3f} {one['recall']:6.3f} {one['f1']:6.3f} {one['rows']:6,}"
        yield line + (f"  {'':9} {' '.join(cells)}" if cells else "")
    if "ece" in found:
        before = f", before the temperature {found['ece_before']:.3f}" * (found["ece"] != found["ece_before"])
        yield f"calibration error {found['ece']:.3f}{before}"
        for one in found["by_confidence"]:
            low = one["from"]
            yield f"confidence {low:.1f}-{low + 0.1:.1f}: {one['accuracy']:.3f} right of {one['count']:,}"

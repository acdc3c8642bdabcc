"""What each class counts in the loss, where rare ones are to count more."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from albert_tf.tasks.rows import Rows
from tfrecords.base.errors import UserError


def weigh(rows: Rows, labels: Sequence[str] | None, wanted: str) -> Rows:
    """Training rows with a weight each, by their class.

    Args:
        labels: names of the classes by number.
        wanted: "balanced", so that all classes count alike (rows / (classes * rows of the class)), or such as
            "no=1,yes=3"; a class that is not named counts 1.

    Raises:
        UserError: the rows have no classes, or `wanted` is neither.
    """
    if labels is None or rows.target != "label":
        raise UserError("--class_weights is for tasks that give every text a class; leave it out")
    classes = rows.values["label"]
    if wanted == "balanced":
        counts = np.bincount(classes, minlength=len(labels))
        weights = len(classes) / (len(labels) * np.maximum(counts, 1))
    else:
        weights = np.ones(len(labels))
        for pair in wanted.split(","):
            name, _, value = pair.rpartition("=")
            number = _number(name or pair, labels)
            weights[number] = _weight(value, wanted)
    return dataclasses.replace(
        rows, values=rows.values | {"class_weight": weights[classes].astype(np.float32)}, weight="class_weight"
    )


def _number(name: str, labels: Sequence[str]) -> int:
    if name not in labels:
        raise UserError(
            f"--class_weights names '{name}', which is none of {', '.join(labels)}; give balanced, or name=weight"
        )
    return list(labels).index(name)


def _weight(value: str, wanted: str) -> float:
    try:
        weight = float(value)
    except ValueError:
        weight = -1.0
    if not 0 <= weight < float("inf"):
        raise UserError(f"--class_weights={wanted}: '{value}' is no weight of 0 or more")
    return weight

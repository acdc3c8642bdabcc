"""Temperatures and thresholds that make a classifier's probabilities reliable, and how reliable they are."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.tasks.metrics import f1
from tfrecords.answers.numbers import softmax

# Bounds of the temperature's logarithm.
_RANGE = 3.0
_BINS = 10


def temperature_of(logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns the number to divide logits [choices, classes] by, so that `labels` are likeliest (arXiv:1706.04599).

    A label counts (n + 1) / (n + 2) and all other classes the rest, as in Platt's scaling (1999, section 2.2): a few
    choices that are all right make no answer certain.
    """
    low, high = -_RANGE, _RANGE
    for _ in range(25):
        third = (high - low) / 3
        if _loss(logits, labels, low + third) < _loss(logits, labels, high - third):
            high -= third
        else:
            low += third
    return float(np.exp((low + high) / 2))


def _loss(logits: np.ndarray, labels: np.ndarray, log_temperature: float) -> float:
    shares = np.log(np.maximum(softmax(logits.astype(np.float64) / np.exp(log_temperature)), 1e-30))
    own = shares[np.arange(len(labels)), labels]
    others = (shares.sum(axis=1) - own) / (logits.shape[1] - 1)
    return -float(np.mean(own * (len(labels) + 1) + others)) / (len(labels) + 2)


def by_confidence(logits: np.ndarray, labels: np.ndarray) -> list[dict[str, float]]:
    """Counts choices by the probability of the likeliest class, in tenths; returns their mean, and their accuracy."""
    shares = softmax(logits)
    confidence, right = shares.max(axis=1), shares.argmax(axis=1) == labels
    tenth = np.minimum(confidence * _BINS, _BINS - 1).astype(int)
    return [
        {
            "from": one / _BINS,
            "count": int((tenth == one).sum()),
            "confidence": float(confidence[tenth == one].mean()),
            "accuracy": float(right[tenth == one].mean()),
        }
        for one in np.unique(tenth)
    ]


def calibration_error(logits: np.ndarray, labels: np.ndarray) -> float:
    """Returns the expected calibration error: the mean distance of confidence and accuracy in ten bins."""
    table = by_confidence(logits, labels)
    distances = [one["count"] * abs(one["confidence"] - one["accuracy"]) for one in table]
    return sum(distances) / len(labels)


class Choices(NamedTuple):
    """Choices between classes: logits float [choices, classes], labels int [choices], row int [choices] of each."""

    logits: np.ndarray
    labels: np.ndarray
    row: np.ndarray

    @classmethod
    def of(cls, decisions: Sequence[tuple[np.ndarray, np.ndarray]]) -> "Choices":
        """Joins a task's `decisions`."""
        logits, labels = (np.concatenate(parts) for parts in zip(*decisions))
        return cls(logits, labels, np.repeat(np.arange(len(decisions)), [len(one) for _, one in decisions]))


def fitted(choices: Choices) -> dict[str, float]:
    """Returns a temperature with the calibration errors before and after it.

    The error after it is of temperatures that were fitted on the other half of the rows each. If these lower not both
    log loss and error, the temperature is 1.
    """
    logits, labels, odd = choices.logits, choices.labels, choices.row % 2 == 1
    crossed = [temperature_of(logits[half], labels[half]) for half in (~odd, odd)]
    after = logits / np.where(odd, *crossed)[:, None]
    errors = [calibration_error(values, labels) for values in (logits, after)]
    helps = errors[1] < errors[0] and _loss(after, labels, 0.0) < _loss(logits, labels, 0.0)
    temperature = temperature_of(logits, labels) if helps else 1.0
    return {"temperature": temperature, "ece_before": errors[0], "ece": errors[helps]}


def thresholds_of(logits: np.ndarray, labels: np.ndarray) -> list[float]:
    """Returns the probability above which each label has its best F1; logits and labels 0 or 1 are [rows, labels].

    They are .5 unless such thresholds raise the mean F1 of the half of the rows on which they were not chosen.
    """
    shares, half = 1 / (1 + np.exp(-logits.astype(np.float64))), np.arange(len(labels)) % 2 == 1
    crossed = np.where(half[:, None], _best(shares[~half], labels[~half]), _best(shares[half], labels[half]))
    scores = [np.mean([f1(*one) for one in zip((shares > those).T, labels.T)]) for those in (crossed, 0.5)]
    return _best(shares, labels).tolist() if scores[0] > scores[1] else [0.5]


def _best(shares: np.ndarray, labels: np.ndarray) -> np.ndarray:
    order = np.argsort(-shares, axis=0, kind="stable")
    shares, labels = (np.take_along_axis(values, order, axis=0) for values in (shares, labels))
    counts = np.arange(1, len(shares) + 1)[:, None]
    # Between two rows of one probability is no threshold.
    ties = np.diff(shares, axis=0, append=0.0) == 0
    best = np.where(ties, -1.0, 2 * labels.cumsum(axis=0) / (counts + labels.sum(axis=0))).argmax(axis=0)[None]
    middle = (shares + np.append(shares[1:], 0 * shares[:1], axis=0)) / 2
    return np.where(labels.any(axis=0), np.take_along_axis(middle, best, axis=0)[0], 0.5)

"""Temperatures and thresholds that make a classifier's probabilities reliable, and how reliable they are."""

from collections.abc import Sequence

import numpy as np

from albert_tf.tasks.metrics import f1
from albert_tf.tasks.task import Answered
from tfrecords.answers.numbers import softmax

_BINS = 10
_TEMPERATURES = np.exp(np.linspace(-2.4, 2.4, 121))
# Of equally good ones the first is taken.
_THRESHOLDS = sorted(np.arange(1, 20) / 20, key=lambda one: abs(one - 0.5))


def choices_of(answered: Sequence[Answered]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Joins the choices: logits [choices, classes], right classes [choices], and whether their row is an odd one."""
    odd = np.repeat(np.arange(len(answered)) % 2 == 1, [len(one.right) for one in answered])
    return *(np.concatenate([one[place] for one in answered]) for place in (3, 4)), odd


def by_confidence(logits: np.ndarray, right: np.ndarray) -> list[dict[str, float]]:
    """Returns how many choices have a likeliest class of a probability in each tenth; its mean, and how many it hits.

    Keys: count, confidence, accuracy.
    """
    shares = softmax(logits)
    confidence, hits = shares.max(axis=1), shares.argmax(axis=1) == right
    tenth = np.minimum(confidence * _BINS, _BINS - 1).astype(int)
    bins = (tenth == one for one in np.unique(tenth))
    return [
        {"count": int(here.sum()), "confidence": float(confidence[here].mean()), "accuracy": float(hits[here].mean())}
        for here in bins
    ]


def calibration_error(table: Sequence[dict[str, float]]) -> float:
    """Returns the expected calibration error, the mean distance of confidence and accuracy, of `by_confidence`."""
    distances = [one["count"] * abs(one["confidence"] - one["accuracy"]) for one in table]
    return sum(distances) / sum(one["count"] for one in table)


def _loss(logits: np.ndarray, right: np.ndarray) -> float:
    # A right class counts (n + 1) / (n + 2), as in Platt's scaling (1999, section 2.2), and the others the rest: a few
    # choices that are all right make no answer certain.
    shares = np.log(np.maximum(softmax(logits), 1e-30))
    own = shares[np.arange(len(right)), right]
    return -float(np.mean(own * (len(right) + 1) + (shares.sum(axis=1) - own) / (logits.shape[1] - 1)))


def temperature_of(logits: np.ndarray, right: np.ndarray) -> float:
    """Returns the number to divide logits by, so that the right classes are likeliest (arXiv:1706.04599)."""
    return float(min(_TEMPERATURES, key=lambda one: _loss(logits / one, right)))


def fitted(answered: Sequence[Answered]) -> dict[str, float]:
    """Returns a temperature with the calibration errors before and after it.

    The error after it is that of temperatures fitted on the other half of the rows each. The temperature is 1 unless
    these lower log loss and error.
    """
    logits, right, odd = choices_of(answered)
    crossed = [temperature_of(logits[half], right[half]) for half in (~odd, odd)]
    both = logits, logits / np.where(odd, *crossed)[:, None]
    errors = [calibration_error(by_confidence(one, right)) for one in both]
    helps = errors[1] < errors[0] and _loss(both[1], right) < _loss(both[0], right)
    temperature = temperature_of(logits, right) if helps else 1.0
    return {"temperature": temperature, "ece_before": errors[0], "ece": errors[helps]}


def thresholds_of(shares: np.ndarray, labels: np.ndarray) -> list[float] | float:
    """Returns the probability above which each label has its best F1; both arrays are [rows, labels].

    Returns .5 for all unless such thresholds raise the mean F1 of the half of the rows on which they were not chosen.
    """
    odd = np.arange(len(labels))[:, None] % 2 == 1

    def best(rows: np.ndarray) -> list[float]:
        columns = zip(shares[rows].T, labels[rows].T)
        return [float(max(_THRESHOLDS, key=lambda one: f1(share > one, there))) for share, there in columns]

    crossed = np.where(odd, best(~odd[:, 0]), best(odd[:, 0]))
    scores = [np.mean([f1(*one) for one in zip((shares > those).T, labels.T)]) for those in (crossed, 0.5)]
    return best(odd[:, 0] | True) if scores[0] > scores[1] else 0.5

"""The metrics of tasks and suites.

SQuAD's official ones are in squad/scorer.py, since they compare texts.
"""

from collections.abc import Callable, Sequence

import numpy as np

# Passages that retrieval ranks for each query.
_MOST_RANKED = 1000
# Of a constant they are 0 by definition, which means nothing.
CORRELATIONS = ("pearson", "spearman")
# The metrics of a user's own data by kind of task, the main one first.
OF_KIND = {
    "classification": ("accuracy", "macro_f1"),
    "multilabel": ("macro_f1", "micro_f1"),
    "regression": (*CORRELATIONS, "mean_squared_error"),
}


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Returns the share of equal entries."""
    return float(np.mean(predictions == labels))


def f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Returns the F1 of class 1; 0 if it is neither predicted nor present."""
    true = np.sum((predictions == 1) & (labels == 1))
    counted = np.sum(predictions == 1) + np.sum(labels == 1)
    return float(2 * true / counted) if counted else 0.0


def macro_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Returns the mean F1 of the classes that are predicted or present."""
    classes = np.union1d(predictions, labels)
    return float(np.mean([f1(predictions == value, labels == value) for value in classes]))


def matthews(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Returns Matthews correlation for any number of classes (Gorodkin 2004); 0 if an argument is constant."""
    classes, both = np.unique(np.concatenate([labels, predictions]), return_inverse=True)
    true, predicted = np.eye(len(classes))[both].reshape(2, len(labels), len(classes))
    true, predicted = true - true.mean(axis=0), predicted - predicted.mean(axis=0)
    norm = np.sqrt(np.sum(true**2) * np.sum(predicted**2))
    return float(np.sum(true * predicted) / norm) if norm else 0.0


def pearson(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Returns Pearson's correlation; 0 if an argument is constant."""
    if len(labels) < 2 or np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return 0.0
    centred = [np.asarray(values, np.float64) - np.mean(values, dtype=np.float64) for values in (predictions, labels)]
    one, other = (values / np.linalg.norm(values) for values in centred)
    return float(np.clip(one @ other, -1.0, 1.0))


def spearman(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Returns Spearman's rank correlation, with mean ranks for ties; 0 if an argument is constant."""
    return pearson(_ranks(predictions), _ranks(labels))


def _ranks(values: np.ndarray) -> np.ndarray:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def mean_squared_error(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Returns the mean squared difference."""
    return float(np.mean((predictions - labels) ** 2))


def of_labels(given: np.ndarray, expected: np.ndarray) -> dict[str, float]:
    """Returns macro_f1 and micro_f1 of several labels a row; both arguments are [rows, labels] of 0 and 1."""
    by_label = [f1(*columns) for columns in zip(given.T, expected.T)]
    return {"macro_f1": float(np.mean(by_label)), "micro_f1": f1(given.ravel(), expected.ravel())}


def of_ranks(ranks: np.ndarray) -> dict[str, float]:
    """Returns the mean reciprocal rank, and the share of ranks that are 1."""
    return {"mrr": float(np.mean(1 / ranks)), "accuracy": float(np.mean(ranks == 1))}


def expected_scores(scores: np.ndarray, relevance: np.ndarray, judged: Sequence[int]) -> dict[str, float]:
    """Returns a query's mean measures over all orders of passages with equal scores.

    Args:
        scores: float64 [passages].
        relevance: int [passages].
        judged: all relevances of the query, the highest first, also those of passages that are not ranked.

    >>> figures = expected_scores(np.zeros(4), np.array([1, 0, 0, 0]), [1])
    >>> round(figures["map"], 4) == round((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4, 4)
    True
    """
    _, group, sizes = np.unique(-scores, return_inverse=True, return_counts=True)
    size = np.repeat(sizes, sizes)[:_MOST_RANKED]
    ranks = np.arange(1, len(size) + 1)
    begins = np.repeat(np.cumsum(sizes) - sizes, sizes)[:_MOST_RANKED]
    gains = np.bincount(group, relevance)
    gain = np.repeat(gains, sizes)[:_MOST_RANKED] / size
    hits = np.bincount(group, relevance > 0)
    # Relevant passages in a rank's group, and those before it.
    here, before = (np.repeat(counts, sizes)[:_MOST_RANKED] for counts in (hits, np.cumsum(hits) - hits))
    chance = here / size
    earlier = (ranks - begins - 1) * (here - 1) / np.maximum(size - 1, 1)
    relevant = max(sum(value > 0 for value in judged), 1)
    discounts = 1 / np.log2(np.arange(2, 12))
    ideal = discounts[: len(judged)] @ judged[:10]
    return {
        "ndcg@10": float(gain[:10] @ discounts[: len(gain)] / ideal) if ideal else 0.0,
        "recall@10": float(chance[:10].sum() / relevant),
        "recall@100": float(chance[:100].sum() / relevant),
        "map": float((chance * (before + 1 + earlier) / ranks).sum() / relevant),
    }


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    metric.__name__: metric for metric in (accuracy, f1, macro_f1, matthews, pearson, spearman, mean_squared_error)
}

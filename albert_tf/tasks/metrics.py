from collections.abc import Callable

import numpy as np


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


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    metric.__name__: metric for metric in (accuracy, f1, macro_f1, matthews, pearson, spearman, mean_squared_error)
}

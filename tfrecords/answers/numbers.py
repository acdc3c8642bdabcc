"""Converts a model's numbers to answers, by class of model.

| model | answer for each text |
|---|---|
| AlbertClassifier | {"label": name (`multi_label`: "labels": [name]), "probabilities": {name: float}} |
| AlbertRegressor | float |
| AlbertTokenClassifier | [(word, label)]; label is None for truncated words |
| AlbertSpanPredictor | {"answer": text or "", "score": float, "null_odds": float}, high without an answer |
| AlbertSentenceEmbedder, AlbertEncoder | a row of a float32 array [texts, dimensions] |
| AlbertPretrainer | for each [MASK] (RoBERTa: <mask>), the likeliest tokens: [(token, probability)] |

Unnamed classes are called by their numbers, as strings.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfrecords.answers.spans import IMPOSSIBLE, Answers
from tfrecords.base.errors import refuse

_TOP = 5
# How vectors are compared, by sentence-transformers' names (its util/similarity.py): first [n, d], second [m, d].
_SIMILARITIES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda first, second: unit(first) @ unit(second).T,
    "dot": lambda first, second: first @ second.T,
    "euclidean": lambda first, second: -np.linalg.norm(first[:, None] - second[None], axis=-1),
    "manhattan": lambda first, second: -np.abs(first[:, None] - second[None]).sum(axis=-1),
}


def similarity(name: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the similarities of n and m vectors by the measure `name`: float32 [n, m]."""
    refuse({
        f"similarity '{name}' is not known; known are {', '.join(_SIMILARITIES)}":
            name not in _SIMILARITIES,
        f"vectors of shape {first.shape} and {second.shape} cannot be compared; give [n, dimensions]":
            first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1],
    })  # fmt: skip
    return _SIMILARITIES[name](first, second)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors scaled to length 1; zero vectors stay zero."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axis=-1, keepdims=True)


def class_answers(logits: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the likeliest class of each row of logits, and all probabilities."""
    shares = [dict(zip(names, row)) for row in softmax(logits.reshape(-1, len(names))).tolist()]
    return [{"label": max(share, key=share.get), "probabilities": share} for share in shares]


def label_answers(logits: np.ndarray, names: Sequence[str], threshold: float | Sequence[float]) -> list[dict[str, Any]]:
    """Returns the labels of each row of logits, and all probabilities.

    `threshold` is the probability above which a label is given, one for all labels or one for each.
    """
    shares = 1 / (1 + np.exp(-logits.reshape(-1, len(names)).astype("float64")))
    return [
        {"labels": [name for name, is_above in zip(names, above) if is_above], "probabilities": dict(zip(names, row))}
        for row, above in zip(shares.tolist(), (shares > np.array(threshold)).tolist())
    ]


def tag_answers(words: Sequence[str], logits: np.ndarray, names: Sequence[str]) -> list[tuple[str, str | None]]:
    """Returns each word with its tag; `logits` are [words, tags]. Words that are cut off get `tag_of_cut(names)`."""
    tags: list[str | None] = [names[number] for number in logits.argmax(axis=-1)]
    return list(zip(words, tags + [tag_of_cut(names)] * (len(words) - len(tags))))


def tag_of_cut(names: Sequence[str]) -> str | None:
    """Returns the tag of a word that is cut off: O where there is one, else none."""
    return "O" if "O" in names else None


def span_answers(answers: Sequence[Answers], threshold: float | None) -> list[dict[str, Any]]:
    """Returns each question's best answer."""
    return [
        {
            "answer": answer.text(threshold),
            "score": answer.candidates[0].score if answer.candidates else IMPOSSIBLE,
            "null_odds": answer.null_odds,
        }
        for answer in answers
    ]


def word_answers(logits: np.ndarray, tokenizer: Any) -> list[list[tuple[str, float]]]:
    """Returns the likeliest tokens of each masked one; `logits` [masked tokens, rows of the table]."""
    # A table may have more rows than the tokenizer has pieces.
    shares = softmax(logits)[:, : tokenizer.vocab_size]
    best = np.argsort(-shares, axis=-1)[:, :_TOP].tolist()
    return [[(tokenizer.id_to_piece(i), float(share[i])) for i in ids] for ids, share in zip(best, shares)]

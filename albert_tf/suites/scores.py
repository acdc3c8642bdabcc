"""Scores embeddings by MTEB's measures; of passages with equal scores every order counts alike."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from albert_tf.suites.sets import EmbeddingSet, PairSet, Ranking
from albert_tf.tasks.metrics import expected_scores, pearson, spearman

# Draws of queries for an interval.
_RESAMPLES = 2000
# Digits of similarities that count: the last ones of a vector depend on its batch.
_DIGITS = 6
# Numbers in memory at a time.
_BLOCK = 2**24


class Embedder(Protocol):
    """The methods that `measure` calls; models of `albert_tf.load` and sentence-transformers have them."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Returns a vector for each text, [texts, dimensions]."""

    def encode_query(self, texts: Sequence[str]) -> np.ndarray:
        """Returns vectors of queries."""

    def encode_document(self, texts: Sequence[str]) -> np.ndarray:
        """Returns vectors of documents."""

    def similarity(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Returns the similarities [n, m] of vectors [n, dimensions] and [m, dimensions]."""


def measure(data: EmbeddingSet, model: Embedder) -> dict[str, dict[str, Any]]:
    """Returns scores (1 is best) and counts for each kind of task, the main score first.

    For retrieval, `interval` is the main score's 95 % bootstrap interval over queries.
    """
    return {data.kind: _pairs(data, model) if isinstance(data, PairSet) else _ranking(data, model)}


def _vectors(encode: Callable, texts: Sequence[str]) -> np.ndarray:
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return np.asarray(encode(list(places)))[[places[text] for text in texts]]


def _pairs(data: PairSet, model: Embedder) -> dict[str, Any]:
    vectors = _vectors(model.encode, [*data.firsts, *data.seconds])
    first, second = vectors[: len(data.firsts)], vectors[len(data.firsts) :]
    found = [model.similarity(a[None], b[None])[0, 0] for a, b in zip(first, second)]
    scores = np.round(np.array(found, "float64"), _DIGITS)
    ends = np.cumsum(list(data.parts.values()))[:-1].tolist() if data.parts else []
    parts = {
        name: spearman(*both)
        for name, *both in zip(data.parts, np.split(scores, ends), np.split(data.labels, ends))
        # A correlation needs different numbers.
        if all(len(set(numbers)) > 1 for numbers in both)
    }
    figures = {"spearman": spearman(scores, data.labels), "pearson": pearson(scores, data.labels)}
    return figures | {"pairs": len(scores)} | ({"parts": parts} if len(parts) > 1 else {})


def _ranking(data: Ranking, model: Embedder) -> dict[str, Any]:
    by_query = ranked(data, model)
    figures = {name: float(values.mean()) for name, values in by_query.items()}
    interval = _interval(next(iter(by_query.values())))
    return figures | {"interval": interval, "queries": len(data.judgements), "passages": len(data.passages)}


def ranked(data: Ranking, model: Embedder) -> dict[str, np.ndarray]:
    """Returns each measure's scores, float64 [queries], in the order of `data.judgements`; the main measure first."""
    names, asked = list(data.passages), list(data.judgements)
    passages = _vectors(model.encode_document, list(data.passages.values()))
    queries = _vectors(model.encode_query, [data.queries[name] for name in asked])
    found, places = [], {name: place for place, name in enumerate(names)}
    size = max(1, _BLOCK // len(names))
    for start in range(0, len(asked), size):
        # Equal passages must have equal scores.
        scores = np.round(model.similarity(queries[start : start + size], passages).astype("float64"), _DIGITS)
        for query, row in zip(asked[start : start + size], scores):
            judged = data.judgements[query]
            relevance = np.zeros(len(names), "int64")
            for name in judged.keys() & places.keys():
                relevance[places[name]] = judged[name]
            if query in places and _is_query(data, query):
                row, relevance = (np.delete(values, places[query]) for values in (row, relevance))
            found.append(expected_scores(row, relevance, sorted(judged.values(), reverse=True)))
    return {name: np.array([figures[name] for figures in found]) for name in found[0]}


def _is_query(data: Ranking, query: str) -> bool:
    # As ArguAna's, which every model would find first. Other sets merely number queries and passages alike.
    return query not in data.judgements[query] and data.passages[query].endswith(data.queries[query])


def _interval(values: np.ndarray) -> list[float]:
    draws = np.random.default_rng(0).choice(values, (_RESAMPLES, len(values)))
    return np.percentile(draws.mean(axis=1), [2.5, 97.5]).tolist()

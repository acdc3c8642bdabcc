"""Scores embeddings by MTEB's measures; needs the extra `evaluation`."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pytrec_eval

from albert_tf.suites.sets import EmbeddingSet, PairSet, Ranking
from albert_tf.tasks.metrics import pearson, spearman

# Passages that retrieval ranks for each query, and draws of queries for an interval.
_MOST_RANKED, _RESAMPLES = 1000, 2000
_RETRIEVAL = {"ndcg@10": "ndcg_cut_10", "recall@10": "recall_10", "recall@100": "recall_100", "map": "map"}
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
    scores = np.array([model.similarity(a[None], b[None])[0, 0] for a, b in zip(first, second)], "float64")
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
    run = {}
    size = max(1, _BLOCK // len(names))
    for start in range(0, len(asked), size):
        # Rounded, since a vector's last digits depend on its batch: equal passages must have equal scores.
        scores = np.round(model.similarity(queries[start : start + size], passages).astype("float64"), 6)
        for query, row in zip(asked[start : start + size], scores):
            chosen = np.argsort(-row, kind="stable")[:_MOST_RANKED].tolist()
            run[query] = {
                names[number]: float(row[number]) for number in chosen if not _is_query(data, query, names[number])
            }
    judge = pytrec_eval.RelevanceEvaluator(data.judgements, {"ndcg_cut.10", "recall.10,100", "map"})
    found = judge.evaluate(run)
    return {name: np.array([found[query][key] for query in asked]) for name, key in _RETRIEVAL.items()}


def _is_query(data: Ranking, query: str, passage: str) -> bool:
    # As ArguAna's, which every model would find first. Other sets merely number queries and passages alike.
    judged = passage in data.judgements[query]
    return passage == query and not judged and data.passages[passage].endswith(data.queries[query])


def _interval(values: np.ndarray) -> list[float]:
    draws = np.random.default_rng(0).choice(values, (_RESAMPLES, len(values)))
    return np.percentile(draws.mean(axis=1), [2.5, 97.5]).tolist()

"""Scores embeddings by MTEB's measures; needs the extra `evaluation`."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pytrec_eval
from scipy import stats
from sklearn.cluster import MiniBatchKMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score, v_measure_score

from albert_tf.suites.sets import Classes, EmbeddingSet, PairSet, Ranking

# Passages that retrieval ranks for each query, and draws of queries for an interval.
_MOST_RANKED, _RESAMPLES = 1000, 2000
_RETRIEVAL = {"ndcg@10": "ndcg_cut_10", "recall@10": "recall_10", "recall@100": "recall_100", "map": "map"}
_RERANKING = {"map": "map", "mrr": "recip_rank"}
# Of MTEB's classification: rows of each class in a draw, draws, and the seed.
_ROWS_PER_CLASS, _DRAWS, _SEED = 8, 10, 42
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

    For retrieval and reranking, `interval` is the main score's 95 % bootstrap interval over queries.
    """
    if isinstance(data, PairSet):
        return {data.kind: _pairs(data, model)}
    if isinstance(data, Ranking):
        return {data.kind: _ranking(data, model)}
    return _classes(data, model)


def _vectors(encode: Callable, texts: Sequence[str]) -> np.ndarray:
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return np.asarray(encode(list(places)))[[places[text] for text in texts]]


def _pairs(data: PairSet, model: Embedder) -> dict[str, Any]:
    vectors = _vectors(model.encode, [*data.firsts, *data.seconds])
    first, second = vectors[: len(data.firsts)], vectors[len(data.firsts) :]
    scores = np.array([model.similarity(a[None], b[None])[0, 0] for a, b in zip(first, second)], "float64")
    if data.kind != "STS":
        return {"average_precision": float(average_precision_score(data.labels, scores)), "pairs": len(scores)}
    ends = np.cumsum(list(data.parts.values()))[:-1].tolist() if data.parts else []
    parts = {
        name: float(stats.spearmanr(*both).statistic)
        for name, *both in zip(data.parts, np.split(scores, ends), np.split(data.labels, ends))
        # A correlation needs different numbers.
        if all(len(set(numbers)) > 1 for numbers in both)
    }
    return {
        "spearman": float(stats.spearmanr(scores, data.labels).statistic),
        "pearson": float(stats.pearsonr(scores, data.labels).statistic),
        "pairs": len(scores),
    } | ({"parts": parts} if len(parts) > 1 else {})


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
    place = {name: number for number, name in enumerate(names)}
    run = {}
    size = max(1, _BLOCK // len(names))
    for start in range(0, len(asked), size):
        # Rounded, since a vector's last digits depend on its batch: equal passages must have equal scores.
        scores = np.round(model.similarity(queries[start : start + size], passages).astype("float64"), 6)
        for query, row in zip(asked[start : start + size], scores):
            if data.kind == "reranking":
                chosen = [place[name] for name in data.judgements[query]]
            else:
                chosen = np.argsort(-row, kind="stable")[:_MOST_RANKED].tolist()
            run[query] = {
                names[number]: float(row[number]) for number in chosen if not _is_query(data, query, names[number])
            }
    measures = _RERANKING if data.kind == "reranking" else _RETRIEVAL
    judge = pytrec_eval.RelevanceEvaluator(data.judgements, {"ndcg_cut.10", "recall.10,100", "map", "recip_rank"})
    found = judge.evaluate(run)
    return {name: np.array([found[query][key] for query in asked]) for name, key in measures.items()}


def _is_query(data: Ranking, query: str, passage: str) -> bool:
    # As ArguAna's, which every model would find first. Other sets merely number queries and passages alike.
    judged = passage in data.judgements[query]
    return passage == query and not judged and data.passages[passage].endswith(data.queries[query])


def _interval(values: np.ndarray) -> list[float]:
    draws = np.random.default_rng(0).choice(values, (_RESAMPLES, len(values)))
    return np.percentile(draws.mean(axis=1), [2.5, 97.5]).tolist()


def _classes(data: Classes, model: Embedder) -> dict[str, dict[str, Any]]:
    texts, labels = zip(*data.test)
    vectors, classes = _vectors(model.encode, texts), sorted(set(labels))
    found = {}
    if data.train:
        found["classification"] = _classification(
            data, _vectors(model.encode, [text for text, _ in data.train]), vectors
        )
    if 1 < len(classes) < len(texts):
        means = MiniBatchKMeans(len(classes), batch_size=512, n_init="auto", random_state=_SEED)
        score = v_measure_score(labels, means.fit_predict(vectors))
        found["clustering"] = {"v_measure": float(score), "texts": len(texts), "classes": len(classes)}
    return found


def _classification(data: Classes, train: np.ndarray, vectors: np.ndarray) -> dict[str, Any]:
    known, labels = (np.array([label for _, label in rows]) for rows in (data.train, data.test))
    answers = LogisticRegression(max_iter=1000).fit(train, known).predict(vectors)
    few, order, state = [], np.arange(len(known)), np.random.RandomState
    for _ in range(_DRAWS):
        # MTEB shuffles the order of the draw before by the same seed.
        state(_SEED).shuffle(order)
        counts, chosen = defaultdict(int), []
        for row in order:
            counts[known[row]] += 1
            if counts[known[row]] <= _ROWS_PER_CLASS:
                chosen.append(row)
        model = LogisticRegression(max_iter=100, random_state=_SEED).fit(train[chosen], known[chosen])
        few.append(float(np.mean(model.predict(vectors) == labels)))
    return {
        "accuracy": float(np.mean(answers == labels)),
        "macro_f1": float(f1_score(labels, answers, average="macro")),
        f"accuracy_{_ROWS_PER_CLASS}_a_class": float(np.mean(few)),
        "texts": len(labels),
        "train_texts": len(known),
        "classes": len(set(known)),
    }

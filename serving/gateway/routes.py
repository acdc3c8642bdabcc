"""The routes, one function each: from a body to rows, and from the rows' answers to what that kind of client reads."""

import base64
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from serving.client.tasks import raw_scores, relevance, vectors_of
from serving.gateway import bodies
from serving.gateway.errors import Refusal, bad_request
from serving.gateway.model import Model
from serving.gateway.scheduler import Work
from serving.gateway.service import Service
from tfrecords.base.errors import UserError

Answer = dict[str, Any] | list


@dataclass(frozen=True)
class Route:
    """A route that takes a JSON body.

    Attributes:
        path: Of the URL.
        family: Whose clients speak it; errors have the form that they read.
        task: What the model must be able to do.
        body: The type of the body.
        handler: Answers it.
        summary: One line for the page.
        example: A body.
    """

    path: str
    family: Literal["openai", "cohere", "tei"]
    task: str
    body: type[bodies.Body]
    handler: Callable[[Service, Any, Any], Awaitable[Answer]]
    summary: str
    example: dict[str, Any] = field(default_factory=dict)


async def embeddings(service: Service, body: bodies.EmbeddingsBody, context) -> Answer:
    """Answers as OpenAI does: vectors of length 1, and how many tokens they took."""
    model, task = service.model(body.model, "embed")
    rows = [(text,) for text in bodies.texts_of(body.input, "input")]
    work = await service.answer(model, task, rows, context, counts=True)
    vectors = _of_length_one(_shortened(vectors_of(task, _outputs(work, task.outputs)), body.dimensions))
    as_text = body.encoding_format == "base64"
    data = [
        {"object": "embedding", "index": number, "embedding": _base64(vector) if as_text else vector.tolist()}
        for number, vector in enumerate(vectors)
    ]
    tokens = sum(work.tokens or [model.estimate.of((text.encode(),)) for (text,) in rows])
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model.name, "usage": usage}


async def embed(service: Service, body: bodies.EmbedBody, context) -> Answer:
    """Answers as text-embeddings-inference does: vectors alone."""
    model, task = service.model(body.model, "embed")
    rows = [(text,) for text in bodies.texts_of(body.inputs, "inputs")]
    work = await service.answer(model, task, rows, context, cut=body.truncate is not False)
    vectors = _shortened(vectors_of(task, _outputs(work, task.outputs)), body.dimensions)
    return (_of_length_one(vectors) if body.normalize or body.dimensions else vectors).tolist()


async def cohere_v1(service: Service, body: bodies.CohereRerankBody, context) -> Answer:
    """Answers as version 1 of Cohere's API does."""
    return await _cohere(service, body, context, "1")


async def cohere_v2(service: Service, body: bodies.CohereRerankBody, context) -> Answer:
    """Answers as version 2 of Cohere's API does."""
    return await _cohere(service, body, context, "2")


async def _cohere(service: Service, body: bodies.CohereRerankBody, context, version: str) -> Answer:
    model, task = service.model(body.model, "rerank")
    texts = bodies.documents_of(body)
    work = await service.answer(model, task, [(body.query, text) for text in texts], context)
    scores = relevance(_scores(work, task.outputs))
    results = []
    for index in _best_first(scores)[: body.top_n]:
        found = {"index": int(index), "relevance_score": float(scores[index])}
        results.append(found | ({"document": {"text": texts[index]}} if body.return_documents else {}))
    meta = {"api_version": {"version": version}, "billed_units": {"search_units": 1}}
    return {"id": str(uuid.uuid4()), "results": results, "meta": meta}


async def rerank(service: Service, body: bodies.RerankBody, context) -> Answer:
    """Answers as text-embeddings-inference does: best first."""
    model, task = service.model(body.model, "rerank")
    rows = [(body.query, text) for text in body.texts]
    work = await service.answer(model, task, rows, context, cut=body.truncate is not False)
    raw = _scores(work, task.outputs)
    scores = raw if body.raw_scores else relevance(raw)
    return [
        {"index": int(index), "score": float(scores[index])} | ({"text": body.texts[index]} if body.return_text else {})
        for index in _best_first(scores)
    ]


async def predict(service: Service, body: bodies.PredictBody, context) -> Answer:
    """Answers as text-embeddings-inference does: of each row all classes, likeliest first."""
    model, task = service.model(body.model, "classify")
    rows, lone = bodies.rows_of(body.inputs, len(task.inputs))
    work = await service.answer(model, task, rows, context, cut=body.truncate is not False)
    answers = _classes(model, work, task.outputs, body.raw_scores)
    return answers[0] if lone else answers


def _classes(model: Model, work: Work, outputs: tuple[str, ...], raw: bool) -> list[list[dict]]:
    if "value" in outputs:
        return [[{"label": "value", "score": float(value)}] for value in work.output("value")]
    probabilities, best = work.output("probabilities"), work.rows("label")
    scores = work.output("logits") if raw else probabilities
    answers = []
    for row, label in enumerate(best):
        names = model.labels if len(model.labels) == scores.shape[1] else list(map(str, range(scores.shape[1])))
        # The answer's own word counts: the model may have got another version since its classes were asked.
        likeliest = int(np.argmax(probabilities[row]))
        names = [*names[:likeliest], label.decode(errors="replace"), *names[likeliest + 1 :]]
        order = _best_first(scores[row])
        answers.append([{"label": names[one], "score": float(scores[row, one])} for one in order])
    return answers


async def tokenize(service: Service, body: bodies.TokenizeBody, context) -> Answer:
    """Answers as text-embeddings-inference does, without places in the text."""
    model, task = service.model(body.model, "tokenize")
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    # A model of pairs is shown the text as its first.
    rows = [(text, *[""] * (len(task.inputs) - 1)) for text in texts]
    work = await service.answer(model, task, rows, context)
    answers = []
    for ids, pieces, length in zip(work.rows("input_ids"), work.rows("pieces"), work.tokens, strict=True):
        # [CLS] and [SEP], or what stands for them, are at the ends.
        special = {int(ids[0]), int(ids[length - 1])}
        tokens = [
            {"id": int(one), "text": piece.decode(errors="replace"), "special": int(one) in special}
            for one, piece in zip(ids[:length], pieces[:length], strict=True)
        ]
        answers.append([token for token in tokens if body.add_special_tokens or not token["special"]])
    return answers


def _outputs(work: Work, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {name: work.output(name) for name in names}


def _scores(work: Work, outputs: tuple[str, ...]) -> np.ndarray:
    try:
        return raw_scores(_outputs(work, outputs))
    except UserError as error:
        raise bad_request(str(error)) from None


def _best_first(scores: np.ndarray) -> np.ndarray:
    return np.argsort(-scores, kind="stable")


def _shortened(vectors: np.ndarray, size: int | None) -> np.ndarray:
    if size is None:
        return vectors
    if size > vectors.shape[1]:
        raise Refusal(400, f"dimensions is {size}; the model's vectors have {vectors.shape[1]}")
    return vectors[:, :size]


def _of_length_one(vectors: np.ndarray) -> np.ndarray:
    lengths = np.sqrt(np.sum(np.square(vectors), axis=1, keepdims=True))
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


def _base64(vector: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(vector, "<f4")).decode()


ROUTES = (
    Route(
        "/v1/embeddings", "openai", "embed", bodies.EmbeddingsBody, embeddings,
        "Vectors of texts, as OpenAI's clients ask for them.", {"input": ["a fine film", "a dull one"]},
    ),
    Route(
        "/embed", "tei", "embed", bodies.EmbedBody, embed,
        "Vectors of texts, as text-embeddings-inference gives them.", {"inputs": "a fine film"},
    ),
    Route(
        "/v2/rerank", "cohere", "rerank", bodies.CohereRerankBody, cohere_v2,
        "Documents by how well they answer a query, as Cohere's clients ask.",
        {"query": "capital of France", "documents": ["Paris is its capital", "a dull film"], "top_n": 1},
    ),
    Route(
        "/v1/rerank", "cohere", "rerank", bodies.CohereRerankBody, cohere_v1,
        "The same by version 1 of that API.", {"query": "capital of France", "documents": ["Paris", "London"]},
    ),
    Route(
        "/rerank", "tei", "rerank", bodies.RerankBody, rerank,
        "Texts by how well they answer a query, as text-embeddings-inference gives them.",
        {"query": "capital of France", "texts": ["Paris is its capital", "a dull film"]},
    ),
    Route(
        "/predict", "tei", "classify", bodies.PredictBody, predict,
        "All classes of texts, or of pairs, likeliest first.", {"inputs": ["a fine film", "a dull one"]},
    ),
    Route(
        "/tokenize", "tei", "tokenize", bodies.TokenizeBody, tokenize,
        "The pieces that texts become.", {"inputs": "a fine film"},
    ),
)  # fmt: skip

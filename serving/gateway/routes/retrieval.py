"""Retrieval routes: embeddings, term weights, ranking."""

import base64
import uuid
from typing import Any

import numpy as np

from serving.client.tasks import RowsTask, raw_scores, relevance
from serving.gateway.errors import Refusal, bad_request
from serving.gateway.routes import bodies
from serving.gateway.scheduler import QueuedRequest
from serving.gateway.service import Answer, Call, Service, best_first
from tfrecords.base.errors import UserError


async def embeddings(service: Service, body: bodies.EmbeddingsBody, call: Call) -> Answer:
    """Returns unit vectors and their token count, as OpenAI does."""
    model, task = service.model(body.model, "embed")
    texts = bodies.texts_of(body.input, "input")
    if "" in texts:
        place = "" if isinstance(body.input, str) else f"[{texts.index('')}]"
        raise bad_request(f"input{place} is an empty text; leave it out")
    work = await service.answer(model, task, texts, call, body, counts=True)
    vectors = of_length_one(vectors_in(work, task, body.dimensions))
    as_text = body.encoding_format == "base64"
    data = (
        {"object": "embedding", "index": number, "embedding": as_base64(vector) if as_text else vector}
        | work.flagged(number)
        for number, vector in enumerate(vectors)
    )
    tokens = model.count(work, texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model.name, "usage": usage}


async def embed(service: Service, body: bodies.EmbedBody, call: Call) -> Answer:
    """Returns vectors alone, as text-embeddings-inference does."""
    model, task = service.model(body.model, "embed")
    work = await service.answer(model, task, bodies.texts_of(body.inputs, "inputs"), call, body)
    vectors = vectors_in(work, task, body.dimensions)
    return list(of_length_one(vectors) if body.normalize is not False else vectors)


async def embed_sparse(service: Service, body: bodies.TextsBody, call: Call) -> Answer:
    """Returns the terms of positive weight, heaviest first, as text-embeddings-inference does."""
    model, task = service.model(body.model, "embed_sparse")
    texts, _ = bodies.listed(body.inputs)
    work = await service.answer(model, task, texts, call, body)
    return (
        [
            {"index": int(ids[place]), "value": float(weights[place]), "text": terms[place].decode(errors="replace")}
            for place in best_first(weights)
            if weights[place] > 0
        ]
        for ids, terms, weights in work.each("ids", "terms", "weights")
    )


async def similarity(service: Service, body: bodies.SimilarityBody, call: Call) -> Answer:
    """Returns the source sentence's cosine with each other sentence, as text-embeddings-inference does."""
    model, task = service.model(body.model, "embed")
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    work = await service.answer(model, task, texts, call, body)
    first, *others = of_length_one(vectors_in(work, task))
    return [float(first @ other) for other in others]


async def embed_all(service: Service, body: bodies.TextsBody, call: Call) -> Answer:
    """Returns the vectors of all tokens, as text-embeddings-inference does."""
    model, task = service.model(body.model, "embed_all")
    texts, _ = bodies.listed(body.inputs)
    work = await service.answer(model, task, texts, call, body)
    return [row[:size] for row, size in work.each("sequence_output", "lengths")]


async def cohere_rerank(service: Service, body: bodies.CohereRerankBody, call: Call, version: str) -> Answer:
    """Ranks documents by version 1 or 2 of Cohere's API."""
    texts, longest = bodies.documents_of(body), service.model(body.model, "rerank")[0].estimate.longest
    if body.max_tokens_per_doc is not None and (longest is None or body.max_tokens_per_doc < longest):
        raise bad_request(f"max_tokens_per_doc is not followed below the model's {longest} tokens; leave it out")
    work, raw = await _pairs(service, body, texts, call)
    return _of_cohere(
        _ranked(work, relevance(raw), body.top_n, "relevance_score"), texts, body.return_documents, version
    )


async def _pairs(service: Service, body: Any, texts: list[str], call: Call) -> tuple[QueuedRequest, np.ndarray]:
    model, task = service.model(body.model, "rerank")
    work = await service.answer(model, task, [(body.query, text) for text in texts], call, body)
    try:
        return work, raw_scores({name: work.output(name) for name in task.outputs})
    except UserError as error:
        raise bad_request(str(error)) from None


def _ranked(work: QueuedRequest, scores: np.ndarray, count: int | None, key: str) -> list[dict[str, Any]]:
    order = best_first(scores)[:count]
    return [{"index": int(index), key: float(scores[index])} | work.flagged(index) for index in order]


def _of_cohere(results: list[dict], texts: list[str], returns: bool | None, version: str) -> Answer:
    for found in results if returns else ():
        found["document"] = {"text": texts[found["index"]]}
    return {"id": str(uuid.uuid4()), "results": results, "meta": meta_of(version, search_units=1)}


def meta_of(version: str, **units: int) -> dict[str, Any]:
    """Returns the `meta` field of Cohere's answers."""
    return {"api_version": {"version": version}, "billed_units": units}


async def rerank(service: Service, body: bodies.RerankBody, call: Call) -> Answer:
    """Ranks `texts` as text-embeddings-inference does, or `documents` as Cohere, Jina and vLLM do; best first."""
    if (body.texts is None) == (body.documents is None):
        raise bad_request("give either texts or documents")
    texts = bodies.documents_of(body) if body.texts is None else body.texts
    work, raw = await _pairs(service, body, texts, call)
    key = "relevance_score" if body.texts is None else "score"
    found = _ranked(work, raw if body.raw_scores else relevance(raw), body.top_n, key)
    returns = body.return_text or body.return_documents
    if body.texts is None:
        return _of_cohere(found, texts, returns, "2")
    return [one | ({"text": texts[one["index"]]} if returns else {}) for one in found]


def vectors_in(work: QueuedRequest, task: RowsTask, size: int | None = None) -> np.ndarray:
    """Returns an embedding task's vectors, cut to their first `size` numbers (None: all)."""
    vectors = work.output(task.outputs[0])
    if size is not None and size > vectors.shape[1]:
        raise Refusal(400, f"dimensions is {size}; the model's vectors have {vectors.shape[1]}")
    return vectors[:, :size]


def of_length_one(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors [rows, size] scaled to length 1."""
    lengths = np.sqrt(np.sum(np.square(vectors), axis=1, keepdims=True))
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)


def as_base64(vector: np.ndarray) -> str:
    """Returns a vector as base64 of float32."""
    return base64.b64encode(np.ascontiguousarray(vector, "<f4")).decode()

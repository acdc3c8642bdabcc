"""Retrieval routes: embeddings, term weights, ranking."""

import base64
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from serving.client.tasks import raw_scores, relevance
from serving.gateway.errors import bad_request
from serving.gateway.routes import bodies
from serving.gateway.scheduler import QueuedRequest
from serving.gateway.service import Answer, Call, best_first
from tfrecords.answers.numbers import unit
from tfrecords.base.errors import UserError


async def embeddings(call: Call, body: bodies.EmbeddingsBody) -> Answer:
    """Returns unit vectors and their token count, as OpenAI does."""
    texts = bodies.texts_of(body.input, "input")
    if "" in texts:
        place = "" if isinstance(body.input, str) else f"[{texts.index('')}]"
        raise bad_request(f"input{place} is an empty text; leave it out")
    work = await call.ask(body, "embed", texts, counts=True)
    as_text = body.encoding_format == "base64"
    data = (
        {"object": "embedding", "index": number, "embedding": _base64(vector) if as_text else vector}
        | work.flagged(number)
        for number, vector in enumerate(unit(_vectors(work, body.dimensions)))
    )
    tokens = sum(work.tokens)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": work.model.name, "usage": usage}


async def embed(call: Call, body: bodies.EmbedBody) -> Answer:
    """Returns vectors alone, as text-embeddings-inference does."""
    work = await call.ask(body, "embed", bodies.texts_of(body.inputs, "inputs"))
    vectors = _vectors(work, body.dimensions)
    return list(unit(vectors) if body.normalize is not False else vectors)


async def embed_sparse(call: Call, body: bodies.TextsBody) -> Answer:
    """Returns the terms of positive weight, heaviest first, as text-embeddings-inference does."""
    work = await call.ask(body, "embed_sparse", bodies.listed(body.inputs)[0])
    return (
        [
            {"index": int(ids[place]), "value": float(weights[place]), "text": terms[place].decode(errors="replace")}
            for place in best_first(weights)
            if weights[place] > 0
        ]
        for ids, terms, weights in work.each("ids", "terms", "weights")
    )


async def similarity(call: Call, body: bodies.SimilarityBody) -> Answer:
    """Returns the source sentence's cosine with each other sentence, as text-embeddings-inference does."""
    work = await call.ask(body, "embed", [body.inputs.source_sentence, *body.inputs.sentences])
    first, *others = unit(_vectors(work))
    return [float(first @ other) for other in others]


async def embed_all(call: Call, body: bodies.TextsBody) -> Answer:
    """Returns the vectors of all tokens, as text-embeddings-inference does."""
    work = await call.ask(body, "embed_all", bodies.listed(body.inputs)[0])
    return [row[:size] for row, size in work.each("sequence_output", "lengths")]


def _vectors(work: QueuedRequest, size: int | None = None) -> np.ndarray:
    """Returns an embedding task's vectors, cut to their first `size` numbers (None: all)."""
    vectors = work.output(work.task.outputs[0])
    if size is not None and size > vectors.shape[1]:
        raise bad_request(f"dimensions is {size}; the model's vectors have {vectors.shape[1]}")
    return vectors[:, :size]


def _base64(vector: np.ndarray) -> str:
    """Returns a vector as base64 of float32."""
    return base64.b64encode(np.ascontiguousarray(vector, "<f4")).decode()


async def rerank(call: Call, body: bodies.RerankBody) -> Answer:
    """Ranks `texts` as text-embeddings-inference does, or `documents` as Cohere, Jina and vLLM do; best first."""
    if (body.texts is None) == (body.documents is None):
        raise bad_request("give either texts or documents")
    returns = body.return_text or body.return_documents
    if body.texts is None:
        return await _by_relevance(call, body, returns, "2", body.raw_scores)
    found = await _ranked(call, body, body.texts, "score", body.raw_scores)
    return [one | ({"text": body.texts[one["index"]]} if returns else {}) for one in found]


async def cohere_rerank(call: Call, body: bodies.CohereRerankBody, version: str) -> Answer:
    """Ranks documents by version 1 or 2 of Cohere's API."""
    return await _by_relevance(call, body, body.return_documents, version)


async def _by_relevance(call: Call, body: Any, returns: bool | None, version: str, raw: bool = False) -> Answer:
    texts = bodies.documents_of(body)
    results = await _ranked(call, body, texts, "relevance_score", raw)
    for found in results if returns else ():
        found["document"] = {"text": texts[found["index"]]}
    return {"id": str(uuid.uuid4()), "results": results, "meta": meta_of(version, search_units=1)}


async def _ranked(call: Call, body: Any, texts: list[str], key: str, is_raw: bool) -> list[dict[str, Any]]:
    work = await call.ask(body, "rerank", [(body.query, text) for text in texts])
    try:
        scores = raw_scores({name: work.output(name) for name in work.task.outputs})
    except UserError as error:
        raise bad_request(str(error)) from None
    scores = scores if is_raw else relevance(scores)
    order = best_first(scores)[: body.top_n]
    return [{"index": int(index), key: float(scores[index])} | work.flagged(index) for index in order]


def meta_of(version: str, **units: int) -> dict[str, Any]:
    """Returns the `meta` field of Cohere's answers."""
    return {"api_version": {"version": version}, "billed_units": units}


async def cohere_embed(call: Call, body: bodies.CohereEmbedBody, version: str) -> Answer:
    """Returns unit vectors in each requested type; version 1 returns vectors alone unless types are requested."""
    work = await call.ask(body, "embed", body.texts, counts=True)
    vectors = unit(_vectors(work, body.output_dimension))
    found = {name: _TYPES[name](vectors) for name in body.embedding_types or ["float"]}
    answer = {
        "id": str(uuid.uuid4()),
        "embeddings": found,
        "texts": body.texts,
        "meta": meta_of(version, input_tokens=sum(work.tokens)),
    }
    if version == "2":
        return answer
    if body.embedding_types:
        return answer | {"response_type": "embeddings_by_type"}
    return answer | {"response_type": "embeddings_floats", "embeddings": found["float"]}


def _int8(vectors: np.ndarray) -> np.ndarray:
    """Scales each vector to a largest absolute value of 127, which keeps cosines."""
    largest = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return np.rint(vectors / largest * 127).astype(np.int32)


def _bits(vectors: np.ndarray) -> np.ndarray:
    return np.packbits(vectors > 0, axis=1).astype(np.int32)


# Of vectors [rows, size], by the name of a type.
_TYPES: dict[str, Callable[[np.ndarray], Iterable]] = {
    "float": list,
    "int8": lambda vectors: list(_int8(vectors)),
    "uint8": lambda vectors: list(_int8(vectors) + 128),
    "binary": lambda vectors: list(_bits(vectors) - 128),
    "ubinary": lambda vectors: list(_bits(vectors)),
    "base64": lambda vectors: map(_base64, vectors),
}

"""Cohere's embeddings and tokens routes (https://docs.cohere.com/reference)."""

import uuid
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from serving.gateway.routes import bodies, understanding
from serving.gateway.routes.retrieval import as_base64, meta_of, of_length_one, vectors_in
from serving.gateway.service import Answer, Call, Service


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
    "base64": lambda vectors: map(as_base64, vectors),
}


async def embed_v1(service: Service, body: bodies.CohereEmbedBody, call: Call) -> Answer:
    """Answers like version 1 of the API: with vectors alone unless types are requested."""
    found = await embed(service, body, call, "1")
    if body.embedding_types:
        return found | {"response_type": "embeddings_by_type"}
    return found | {"response_type": "embeddings_floats", "embeddings": found["embeddings"]["float"]}


async def embed(service: Service, body: bodies.CohereEmbedBody, call: Call, version: str) -> dict[str, Any]:
    """Returns unit vectors in each requested type, as version 2 of the API does."""
    model, task = service.model(body.model, "embed")
    work = await service.answer(model, task, body.texts, call, body, counts=True)
    vectors = of_length_one(vectors_in(work, task, body.output_dimension))
    return {
        "id": str(uuid.uuid4()),
        "embeddings": {name: _TYPES[name](vectors) for name in body.embedding_types or ["float"]},
        "texts": body.texts,
        "meta": meta_of(version, input_tokens=model.count(work, body.texts)),
    }


async def tokenize(service: Service, body: bodies.CohereTokensBody, call: Call) -> Answer:
    """Returns a text's ids and pieces without special tokens."""
    asked = bodies.TokenizeBody(inputs=body.text, model=body.model, add_special_tokens=False)
    (tokens,) = await understanding.tokenize(service, asked, call)
    return {
        "tokens": [token["id"] for token in tokens],
        "token_strings": [token["text"] for token in tokens],
        "meta": meta_of("1"),
    }


async def detokenize(service: Service, body: bodies.CohereIdsBody, call: Call) -> Answer:
    """Returns the text of token ids."""
    asked = bodies.DecodeBody(ids=[body.tokens], model=body.model, skip_special_tokens=False)
    (text,) = await understanding.decode(service, asked, call)
    return {"text": text, "meta": meta_of("1")}

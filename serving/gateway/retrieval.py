"""What retrieval asks: vectors of texts, weights of their terms, and documents by how well they answer a query."""

import base64
import uuid

import numpy as np

from serving.client.tasks import raw_scores, relevance, vectors_of
from serving.gateway import bodies
from serving.gateway.errors import Refusal, bad_request
from serving.gateway.scheduler import Work
from serving.gateway.service import Answer, Call, Service, best_first
from tfrecords.base.errors import UserError


async def embeddings(service: Service, body: bodies.EmbeddingsBody, call: Call) -> Answer:
    """Answers as OpenAI does: vectors of length 1, and how many tokens they took."""
    model, task = service.model(body.model, "embed")
    rows = [(text,) for text in bodies.texts_of(body.input, "input")]
    work = await service.answer(model, task, rows, call, counts=True)
    vectors = _of_length_one(_shortened(vectors_of(task, _outputs(work, task.outputs)), body.dimensions))
    as_text = body.encoding_format == "base64"
    data = [
        {"object": "embedding", "index": number, "embedding": _base64(vector) if as_text else vector.tolist()}
        | work.flagged(number)
        for number, vector in enumerate(vectors)
    ]
    tokens = sum(work.tokens or [model.estimate.of((text.encode(),)) for (text,) in rows])
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model.name, "usage": usage}


async def embed(service: Service, body: bodies.EmbedBody, call: Call) -> Answer:
    """Answers as text-embeddings-inference does: vectors alone."""
    model, task = service.model(body.model, "embed")
    rows = [(text,) for text in bodies.texts_of(body.inputs, "inputs")]
    work = await service.answer(model, task, rows, call, cut=body.truncate is not False)
    vectors = _shortened(vectors_of(task, _outputs(work, task.outputs)), body.dimensions)
    return (_of_length_one(vectors) if body.normalize or body.dimensions else vectors).tolist()


async def embed_sparse(service: Service, body: bodies.TextsBody, call: Call) -> Answer:
    """Answers as text-embeddings-inference does: of each text the terms that weigh something, heaviest first."""
    model, task = service.model(body.model, "embed_sparse")
    texts, _ = bodies.listed(body.inputs)
    work = await service.answer(model, task, [(text,) for text in texts], call, cut=body.truncate is not False)
    rows = zip(work.rows("ids"), work.rows("terms"), work.rows("weights"), strict=True)
    return [
        [
            {"index": int(ids[place]), "value": float(weights[place]), "text": terms[place].decode(errors="replace")}
            for place in best_first(weights)
            if weights[place] > 0
        ]
        for ids, terms, weights in rows
    ]


async def cohere_v1(service: Service, body: bodies.CohereRerankBody, call: Call) -> Answer:
    """Answers as version 1 of Cohere's API does."""
    return await _cohere(service, body, call, "1")


async def cohere_v2(service: Service, body: bodies.CohereRerankBody, call: Call) -> Answer:
    """Answers as version 2 of Cohere's API does."""
    return await _cohere(service, body, call, "2")


async def _cohere(service: Service, body: bodies.CohereRerankBody, call, version: str) -> Answer:
    model, task = service.model(body.model, "rerank")
    texts, longest = bodies.documents_of(body), model.estimate.longest
    if body.max_tokens_per_doc is not None and (longest is None or body.max_tokens_per_doc < longest):
        raise bad_request(f"max_tokens_per_doc is not followed below the model's {longest} tokens; leave it out")
    work = await service.answer(model, task, [(body.query, text) for text in texts], call)
    scores = relevance(_scores(work, task.outputs))
    results = []
    for index in best_first(scores)[: body.top_n]:
        found = {"index": int(index), "relevance_score": float(scores[index])} | work.flagged(index)
        results.append(found | ({"document": {"text": texts[index]}} if body.return_documents else {}))
    meta = {"api_version": {"version": version}, "billed_units": {"search_units": 1}}
    return {"id": str(uuid.uuid4()), "results": results, "meta": meta}


async def rerank(service: Service, body: bodies.RerankBody, call: Call) -> Answer:
    """Answers as text-embeddings-inference does: best first."""
    model, task = service.model(body.model, "rerank")
    rows = [(body.query, text) for text in body.texts]
    work = await service.answer(model, task, rows, call, cut=body.truncate is not False)
    raw = _scores(work, task.outputs)
    scores = raw if body.raw_scores else relevance(raw)
    return [
        {"index": int(index), "score": float(scores[index])}
        | ({"text": body.texts[index]} if body.return_text else {})
        | work.flagged(index)
        for index in best_first(scores)
    ]


def _outputs(work: Work, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    return {name: work.output(name) for name in names}


def _scores(work: Work, outputs: tuple[str, ...]) -> np.ndarray:
    try:
        return raw_scores(_outputs(work, outputs))
    except UserError as error:
        raise bad_request(str(error)) from None


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

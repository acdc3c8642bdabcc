"""The routes: what each takes, whose clients speak it, and what answers it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from serving.gateway import bodies, retrieval, understanding
from serving.gateway.service import Answer, Call, Service


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
    handler: Callable[[Service, Any, Call], Awaitable[Answer]]
    summary: str
    example: dict[str, Any] = field(default_factory=dict)


ROUTES = (
    Route(
        "/v1/embeddings", "openai", "embed", bodies.EmbeddingsBody, retrieval.embeddings,
        "Vectors of texts, as OpenAI's clients ask for them.", {"input": ["a fine film", "a dull one"]},
    ),
    Route(
        "/embed", "tei", "embed", bodies.EmbedBody, retrieval.embed,
        "Vectors of texts, as text-embeddings-inference gives them.", {"inputs": "a fine film"},
    ),
    Route(
        "/embed_sparse", "tei", "embed_sparse", bodies.TextsBody, retrieval.embed_sparse,
        "The terms that weigh something in texts, as text-embeddings-inference gives them.", {"inputs": "a fine film"},
    ),
    Route(
        "/v2/rerank", "cohere", "rerank", bodies.CohereRerankBody, retrieval.cohere_v2,
        "Documents by how well they answer a query, as Cohere's clients ask.",
        {"query": "capital of France", "documents": ["Paris is its capital", "a dull film"], "top_n": 1},
    ),
    Route(
        "/v1/rerank", "cohere", "rerank", bodies.CohereRerankBody, retrieval.cohere_v1,
        "The same by version 1 of that API.", {"query": "capital of France", "documents": ["Paris", "London"]},
    ),
    Route(
        "/rerank", "tei", "rerank", bodies.RerankBody, retrieval.rerank,
        "Texts by how well they answer a query, as text-embeddings-inference gives them.",
        {"query": "capital of France", "texts": ["Paris is its capital", "a dull film"]},
    ),
    Route(
        "/predict", "tei", "classify", bodies.PredictBody, understanding.predict,
        "All classes of texts, or of pairs, likeliest first.", {"inputs": ["a fine film", "a dull one"]},
    ),
    Route(
        "/early_exit", "tei", "early_exit", bodies.ExitBody, understanding.early_exit,
        "The step that rows leave the model at by a threshold, of how many; and their classes.",
        {"inputs": "a fine film", "threshold": 0.9},
    ),
    Route(
        "/fill_mask", "tei", "fill_mask", bodies.TextsBody, understanding.fill_mask,
        "The likeliest pieces for each mask of texts.", {"inputs": "a [MASK] film"},
    ),
    Route(
        "/sentence_order", "tei", "sentence_order", bodies.PairsBody, understanding.sentence_order,
        "Whether pairs stand in their order.", {"inputs": ["First this happened.", "Then that did."]},
    ),
    Route(
        "/answer", "tei", "answer", bodies.AnswerBody, understanding.answer,
        "Answers to questions as spans of their contexts, in characters.",
        {"inputs": {"question": "Where is Paris?", "context": "Paris is in France."}},
    ),
    Route(
        "/tag", "tei", "tag", bodies.TextsBody, understanding.tag,
        "The words of texts, each with its class.", {"inputs": "a fine film"},
    ),
    Route(
        "/tokenize", "tei", "tokenize", bodies.TokenizeBody, understanding.tokenize,
        "The pieces that texts become.", {"inputs": "a fine film"},
    ),
)  # fmt: skip

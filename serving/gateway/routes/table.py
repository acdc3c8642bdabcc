from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from serving.gateway.errors import bad_request
from serving.gateway.routes import bodies, retrieval, understanding
from serving.gateway.service import Answer, Call, Handler


@dataclass(frozen=True)
class Route:
    """A route that takes a JSON body.

    `family` names the clients' API, which determines the form of errors. `task` "" means any.
    """

    path: str
    family: Literal["openai", "cohere", "tei"]
    task: str
    body: type[bodies.Body]
    handler: Handler
    summary: str
    example: dict[str, Any] = field(default_factory=dict)

    def is_for(self, tasks: Collection[str]) -> bool:
        return self.task in tasks or (not self.task and bool(tasks))


async def first(call: Call, values: dict[str, Any]) -> Answer:
    """Uses the route of the model's first task, or /rerank or /similarity if the body has their fields."""
    name = values.get("model")
    if not isinstance(name, str | None):
        raise bad_request("the body is not what this route takes: `$.model` is no string")
    model, _ = call.service.model(name, *_FIRST)
    path, inputs = first_path(model.tasks), values.get("inputs")
    if "query" in values and "rerank" in model.tasks:
        path = "/rerank"
    elif isinstance(inputs, dict) and "source_sentence" in inputs:
        path = "/similarity"
    (route,) = (route for route in ROUTES if route.path == path)
    return await route.handler(call, bodies.read_values(values | {"model": model.name}, route.body))


# What answers the route of the first task.
_FIRST = {
    "embed": "/embed", "classify": "/pipeline/text-classification", "rerank": "/rerank",
    "answer": "/pipeline/question-answering", "tag": "/pipeline/token-classification",
    "fill_mask": "/pipeline/fill-mask", "embed_sparse": "/embed_sparse", "tokenize": "/tokenize",
}  # fmt: skip


def first_path(tasks: Collection[str]) -> str:
    """Returns the path whose route also serves the root URL."""
    return next((path for task, path in _FIRST.items() if task in tasks), "/")


_QUESTION = {"question": "Where is Paris?", "context": "Paris is in France."}
_SENTENCES = {"source_sentence": "a fine film", "sentences": ["a good film", "a dull one"]}
ROUTES = (
    Route(
        "/", "tei", "", bodies.AnyBody, first,
        "The first task of the model, as text-embeddings-inference and Hugging Face's clients ask for it.",
        {"inputs": "a fine film"},
    ),
    *(
        Route(
            path, "openai", "embed", bodies.EmbeddingsBody, retrieval.embeddings,
            "Vectors of texts, as OpenAI's clients ask for them.", {"input": ["a fine film", "a dull one"]},
        )
        for path in ("/v1/embeddings", "/embeddings")
    ),
    Route(
        "/embed", "tei", "embed", bodies.EmbedBody, retrieval.embed,
        "Vectors of texts, as text-embeddings-inference gives them.", {"inputs": "a fine film"},
    ),
    Route(
        "/embed_all", "tei", "embed_all", bodies.TextsBody, retrieval.embed_all,
        "Vectors of all tokens of texts, as text-embeddings-inference gives them.", {"inputs": "a fine film"},
    ),
    Route(
        "/similarity", "tei", "embed", bodies.SimilarityBody, retrieval.similarity,
        "The cosines of sentences to one, as text-embeddings-inference gives them.", {"inputs": _SENTENCES},
    ),
    Route(
        "/embed_sparse", "tei", "embed_sparse", bodies.TextsBody, retrieval.embed_sparse,
        "The terms that weigh something in texts, as text-embeddings-inference gives them.", {"inputs": "a fine film"},
    ),
    *(
        Route(
            f"/v{version}/{name}", "cohere", name, body, partial(handler, version=version),
            f"{what}, as Cohere's clients ask by version {version} of its API.", example,
        )
        for name, body, handler, what, example in (
            (
                "rerank", bodies.CohereRerankBody, retrieval.cohere_rerank, "Documents by how well they answer a query",
                {"query": "capital of France", "documents": ["Paris is its capital", "a dull film"], "top_n": 1},
            ),
            (
                "embed", bodies.CohereEmbedBody, retrieval.cohere_embed, "Vectors of texts",
                {"texts": ["a fine film"], "embedding_types": ["float", "int8"]},
            ),
        )
        for version in "21"
    ),
    Route(
        "/v1/tokenize", "cohere", "tokenize", bodies.CohereTokensBody, understanding.cohere_tokenize,
        "The pieces of a text, as Cohere's clients ask.", {"text": "a fine film"},
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
        "/fill_mask", "tei", "fill_mask", bodies.MasksBody, understanding.fill_mask,
        "The likeliest pieces for each mask of texts.", {"inputs": "a [MASK] film"},
    ),
    Route(
        "/answer", "tei", "answer", bodies.AnswerBody, understanding.answer,
        "Answers to questions as spans of their contexts, in characters.",
        {"inputs": _QUESTION},
    ),
    Route(
        "/tag", "tei", "tag", bodies.TextsBody, understanding.tag,
        "The words of texts, each with its class.", {"inputs": "a fine film"},
    ),
    Route(
        "/tokenize", "tei", "tokenize", bodies.TokenizeBody, understanding.tokenize,
        "The pieces that texts become.", {"inputs": "a fine film"},
    ),
    *(
        Route(f"/pipeline/{name}", "tei", task, body, handler, "As Hugging Face's clients read it.", {"inputs": inputs})
        for name, task, body, handler, inputs in (
            ("feature-extraction", "embed", bodies.EmbedBody, retrieval.embed, "a fine film"),
            ("sentence-similarity", "embed", bodies.SimilarityBody, retrieval.similarity, _SENTENCES),
            ("text-classification", "classify", bodies.PredictBody, understanding.text_classification, "a fine film"),
            ("token-classification", "tag", bodies.EntitiesBody, understanding.token_classification, "a fine film"),
            ("fill-mask", "fill_mask", bodies.MasksBody, understanding.pipeline_fill_mask, "a [MASK] film"),
            ("question-answering", "answer", bodies.AnswerBody, understanding.question_answering, _QUESTION),
        )
    ),
)  # fmt: skip

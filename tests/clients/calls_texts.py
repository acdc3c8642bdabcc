"""What Cohere's and Hugging Face's clients do, and plain requests of texts. Run by calls.py."""

from functools import cache

KEY = "none"


# Cohere


def cohere_client(at, version=2):
    import cohere

    return (cohere.ClientV2 if version == 2 else cohere.Client)(api_key=KEY, base_url=at.url)


def cohere_rerank(at):
    answer = cohere_client(at).rerank(model="pairs", query=at.query, documents=at.documents, top_n=2)
    return [[one.index, one.relevance_score] for one in answer.results]


def cohere_rerank_v1(at):
    answer = cohere_client(at, 1).rerank(model="pairs", query=at.query, documents=at.documents)
    return [[one.index, one.relevance_score] for one in answer.results]


def cohere_vectors(at, input_type, kind="float"):
    answer = cohere_client(at).embed(
        model="embedder", texts=at.texts, input_type=input_type, embedding_types=[kind]
    )  # fmt: skip
    return getattr(answer.embeddings, "float_" if kind == "float" else kind)


def cohere_embed(at):
    return cohere_vectors(at, "classification")


def cohere_embed_v1(at):
    return cohere_client(at, 1).embed(model="embedder", texts=at.texts, input_type="classification").embeddings


def cohere_query(at):
    return cohere_vectors(at, "search_query")


def cohere_int8(at):
    return cohere_vectors(at, "classification", "int8")


def cohere_left(at):
    return cohere_client(at).embed(
        model="embedder", texts=[at.long], input_type="classification", embedding_types=["float"], truncate="START"
    ).embeddings.float_  # fmt: skip


def cohere_models(at):
    return [one.name for one in cohere_client(at, 1).models.list().models]


def cohere_detokenize(at):
    client = cohere_client(at, 1)
    tokens = client.tokenize(text=at.texts[0], model="embedder", offline=False).tokens
    return [client.detokenize(tokens=tokens, model="embedder", offline=False).text]


def cohere_tokenize(at):
    return cohere_client(at, 1).tokenize(text=at.texts[0], model="embedder", offline=False).token_strings


# Hugging Face


@cache
def hub():
    from huggingface_hub import InferenceClient

    return InferenceClient(token=KEY)


def hub_vector(at):
    return hub().feature_extraction(at.texts[0], model=f"{at.url}/embed").reshape(-1).tolist()


def hub_vectors(at):
    return hub().feature_extraction(at.texts, model=at.url).tolist()


def hub_prompt(at):
    return hub().feature_extraction(at.texts, model=f"{at.url}/embed", prompt_name="query").tolist()


def hub_left(at):
    asked = {"truncate": True, "truncation_direction": "left", "model": f"{at.url}/pipeline/feature-extraction"}
    return hub().feature_extraction(at.long, **asked).tolist()


def hub_classes(at):
    return [
        [one.label, one.score]
        for one in hub().text_classification(at.texts[0], model=f"{at.url}/pipeline/text-classification")
    ]


def hub_mask(at):
    found = hub().fill_mask(at.masked, model=f"{at.url}/pipeline/fill-mask")
    assert all("[MASK]" not in one.sequence for one in found)
    return [[one.token_str, one.score] for one in found]


def hub_words(at):
    found = hub().token_classification(at.texts[1], model=f"{at.url}/pipeline/token-classification")
    return [[one.word, one.entity_group or one.entity, one.score, one.start, one.end] for one in found]


def hub_answer(at):
    found = hub().question_answering(
        question=at.question, context=at.context, model=f"{at.url}/pipeline/question-answering"
    )
    return [found.answer, found.start, found.end, found.score]


def hub_similarity(at):
    return hub().sentence_similarity(at.texts[0], at.texts[1:], model=f"{at.url}/pipeline/sentence-similarity")


async def hub_async(at):
    from huggingface_hub import AsyncInferenceClient

    async with AsyncInferenceClient(token=KEY) as client:
        return (
            (await client.feature_extraction(at.texts[0], model=f"{at.url}/pipeline/feature-extraction"))
            .reshape(-1)
            .tolist()
        )


# TensorFlow Serving's REST, and text-embeddings-inference's routes


def asked(url, body, **options):
    import requests

    answer = requests.post(url, json=body, timeout=60, **options)
    answer.raise_for_status()
    return answer.json()


def requests_rows(at):
    return asked(f"http://{at.rest}/v1/models/embedder:predict", {"instances": at.texts})["predictions"]


def requests_columns(at):
    return asked(f"http://{at.rest}/v1/models/embedder:predict", {"inputs": {"text": at.texts}})["outputs"]


def requests_embed(at):
    return asked(f"{at.url}/embed", {"inputs": at.texts})


def requests_all(at):
    return [len(rows) for rows in asked(f"{at.url}/embed_all", {"inputs": at.texts})]


def requests_decode(at):
    ids = [[piece["id"] for piece in row] for row in asked(f"{at.url}/tokenize", {"inputs": at.texts[:1]})]
    return asked(f"{at.url}/decode", {"ids": ids, "skip_special_tokens": True})


def requests_similarity(at):
    return asked(f"{at.url}/similarity", {"inputs": {"source_sentence": at.texts[0], "sentences": at.texts[1:]}})


def requests_alias(at):
    return [one["embedding"] for one in asked(f"{at.url}/embeddings", {"input": at.texts})["data"]]


def requests_predict(at):
    answer = asked(f"{at.url}/predict", {"inputs": [[text] for text in at.texts]})
    return [[[one["label"], one["score"]] for one in row] for row in answer]


def requests_rerank(at):
    found = asked(f"{at.url}/rerank", {"query": at.query, "texts": at.documents})
    return [one["score"] for one in sorted(found, key=lambda one: one["index"])]

"""What Cohere's and Hugging Face's clients do, and plain requests of texts. Run by calls.py."""

from functools import cache

KEY = "none"


# Cohere


def cohere_client(at):
    import cohere

    return cohere.ClientV2(api_key=KEY, base_url=at.url)


def cohere_rerank(at):
    answer = cohere_client(at).rerank(model="pairs", query=at.query, documents=at.documents, top_n=2)
    return [[one.index, one.relevance_score] for one in answer.results]


def cohere_embed(at):
    asked = {"texts": at.texts, "input_type": "classification", "embedding_types": ["float"]}
    return cohere_client(at).embed(model="embedder", **asked).embeddings.float_


# Hugging Face


@cache
def hub():
    from huggingface_hub import InferenceClient

    return InferenceClient(token=KEY)


def hub_vector(at):
    return hub().feature_extraction(at.texts[0], model=f"{at.url}/embed").reshape(-1).tolist()


def hub_vectors(at):
    return hub().feature_extraction(at.texts, model=at.url).tolist()


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

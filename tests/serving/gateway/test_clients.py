"""Other people's clients: OpenAI's and Cohere's."""

import base64

import cohere
import numpy as np
import openai
import pytest

from tests.serving.gateway.conftest import logits, vector

TEXTS = ["a fine film", "a dull one and long", "", "naïve café ☕"]
VECTORS = np.array([vector(text.encode()) for text in TEXTS])
DOCUMENTS = ["Paris", "London", "Berlin is a city", "Rome"]


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def openai_client(shared_gateway):
    return openai.OpenAI(base_url=shared_gateway("embedder").url + "/v1", api_key="any", max_retries=0)


@pytest.mark.parametrize(
    "options", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}, {"dimensions": 3}]
)
def test_openai_client_embeds(openai_client, options):
    asked = [number for number, text in enumerate(TEXTS) if text]
    answer = openai_client.embeddings.create(model="default", input=[TEXTS[number] for number in asked], **options)
    assert [one.index for one in answer.data] == [0, 1, 2] and answer.model == "default"
    vectors = [one.embedding for one in answer.data]
    if options.get("encoding_format") == "base64":
        vectors = [np.frombuffer(base64.b64decode(one), "<f4") for one in vectors]
    np.testing.assert_allclose(vectors, unit(VECTORS[asked, : options.get("dimensions")]), rtol=1e-6)
    # [CLS] and [SEP] count, as OpenAI counts what its models read.
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == (3 + 2) + (5 + 2) + (3 + 2)


def test_openai_client_reads_errors_and_lists_models(openai_client):
    with pytest.raises(openai.NotFoundError, match="the model 'gpt' does not exist; there is default"):
        openai_client.embeddings.create(model="gpt", input="x")
    with pytest.raises(openai.BadRequestError, match="token ids are not taken"):
        openai_client.embeddings.create(model="default", input=[1, 2])
    assert [model.id for model in openai_client.models.list()] == ["default"]
    assert openai_client.models.retrieve("default").id == "default"
    with pytest.raises(openai.NotFoundError):
        openai_client.models.retrieve("other")


@pytest.mark.parametrize(("version", "client_of"), [("1", cohere.Client), ("2", cohere.ClientV2)])
def test_cohere_client_reranks(shared_gateway, version, client_of):
    client = client_of(api_key="any", base_url=shared_gateway("cross-encoder").url)
    asked = {"model": "default", "query": "capital of France"}
    answer = client.rerank(documents=DOCUMENTS, top_n=3, **asked)
    raw = np.array([logits((b"capital of France", text.encode())) for text in DOCUMENTS])
    expected = 1 / (1 + np.exp(raw[:, 0] - raw[:, 1]))
    order = np.argsort(-expected)[:3]
    assert [one.index for one in answer.results] == order.tolist()
    np.testing.assert_allclose([one.relevance_score for one in answer.results], expected[order], rtol=1e-5)
    assert answer.meta.api_version.version == version and answer.id
    if version == "1":
        given = client.rerank(documents=[{"text": text} for text in DOCUMENTS], return_documents=True, **asked)
        assert {one.document.text for one in given.results} == set(DOCUMENTS)
        with pytest.raises(cohere.BadRequestError, match=r"documents\[0\] has no string 'text'"):
            client.rerank(documents=[{"title": "x"}], **asked)

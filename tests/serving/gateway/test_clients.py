"""Other people's clients, OpenAI's, Cohere's and Hugging Face's, read what the routes answer (requests.txt)."""

import cohere
import huggingface_hub
import openai
import pytest
from numpy.testing import assert_allclose

from tests.serving.gateway.conftest import LONGEST, vector

TEXT = "a fine film"
DOCUMENTS = ["Paris", "London", "Berlin is a city", "Rome"]


@pytest.fixture(scope="module")
def openai_client(shared_gateway):
    return openai.OpenAI(base_url=shared_gateway("embedder").url + "/v1", api_key="any", max_retries=0)


def answered(gateway, path, asked):
    return gateway.http.post(path, json=asked).json()


@pytest.mark.parametrize("options", [{}, {"dimensions": 3}], ids=str)
def test_openai_client_embeds(shared_gateway, openai_client, options):
    """By itself it asks for base64."""
    asked = {"model": "default", "input": [TEXT, "a dull one and long", "naïve café ☕"]} | options
    answer = openai_client.embeddings.create(**asked)
    expected = answered(shared_gateway("embedder"), "/v1/embeddings", asked)
    assert [one.index for one in answer.data] == [0, 1, 2] and answer.usage.to_dict() == expected["usage"]
    vectors = [[one.embedding for one in answer.data], [one["embedding"] for one in expected["data"]]]
    assert_allclose(*vectors, rtol=1e-6)


def test_openai_client_reads_errors_and_lists_models(openai_client):
    with pytest.raises(openai.NotFoundError, match="the model 'gpt' does not exist; there is default"):
        openai_client.embeddings.create(model="gpt", input="x")
    with pytest.raises(openai.BadRequestError, match="token ids are not taken"):
        openai_client.embeddings.create(model="default", input=[1, 2])
    assert [model.id for model in openai_client.models.list()] == ["default"]
    assert openai_client.models.retrieve("default").id == "default"


@pytest.mark.parametrize("version, client_of", [("1", cohere.Client), ("2", cohere.ClientV2)])
def test_cohere_client_reranks(shared_gateway, version, client_of):
    gateway = shared_gateway("cross-encoder")
    client = client_of(api_key="any", base_url=gateway.url)
    asked = {"model": "default", "query": "capital of France", "documents": DOCUMENTS, "top_n": 3}
    answer, expected = client.rerank(**asked), answered(gateway, f"/v{version}/rerank", asked)
    found = [{"index": one.index, "relevance_score": one.relevance_score} for one in answer.results]
    assert found == expected["results"] and answer.meta.api_version.version == version and answer.id
    if version == "1":
        given = client.rerank(**asked | {"documents": [{"text": "Paris"}]}, return_documents=True)
        assert given.results[0].document.text == "Paris"


# Of the kind of a model: the task, a text, and the fields that the client reads.
TASKS = {
    "classifier": ("text_classification", TEXT, {"label", "score"}),
    "tagger": ("token_classification", TEXT, {"entity_group", "word", "start", "end"}),
    "pretrainer": ("fill_mask", "a [MASK] film", {"token", "token_str", "sequence", "score"}),
}


def test_hugging_faces_client_reads_every_task(shared_gateway):
    for kind, (task, text, fields) in TASKS.items():
        client = huggingface_hub.InferenceClient(f"{shared_gateway(kind).url}/pipeline/{task.replace('_', '-')}")
        found = getattr(client, task)(text)
        assert found and all(getattr(one, field) is not None for one in found for field in fields)
    embedder = huggingface_hub.InferenceClient(shared_gateway("prompted embedder").url)
    prompted = embedder.feature_extraction("a", prompt_name="query", normalize=False)
    assert_allclose(prompted, [vector(b"query: a")], rtol=1e-6)
    assert embedder.sentence_similarity("a", ["a", "b"])[0] == pytest.approx(1)
    answer = huggingface_hub.InferenceClient(shared_gateway("spans").url).question_answering("who?", "Al met Bo")
    assert (answer.answer, answer.start, answer.end) == ("Al", 0, 2)
    with pytest.raises(huggingface_hub.errors.BadRequestError, match="has no prompt 'nope'"):
        embedder.feature_extraction("a", prompt_name="nope")


TYPES = ["float", "int8", "uint8", "binary", "ubinary", "base64"]


@pytest.mark.parametrize("client_of", [cohere.Client, cohere.ClientV2])
def test_cohere_client_embeds(shared_gateway, client_of):
    gateway = shared_gateway("prompted embedder")
    client = client_of(api_key="any", base_url=gateway.url)
    asked = {"texts": [TEXT], "model": "default", "input_type": "search_query", "embedding_types": TYPES}
    answer = client.embed(**asked)
    found = {name: getattr(answer.embeddings, name.replace("float", "float_")) for name in TYPES}
    assert found == answered(gateway, "/v2/embed", asked)["embeddings"]
    with pytest.raises(cohere.core.ApiError, match=f"does not fit into the model's {LONGEST} tokens"):
        client.embed(**asked | {"texts": ["word " * LONGEST]}, truncate="NONE")

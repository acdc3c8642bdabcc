"""Other people's clients: OpenAI's, Cohere's and Hugging Face's."""

import base64

import cohere
import huggingface_hub
import numpy as np
import openai
import pytest
from numpy.testing import assert_allclose

from tests.serving.gateway.conftest import LONGEST, cut_left, logits, vector

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
    assert_allclose(vectors, unit(VECTORS[asked, : options.get("dimensions")]), rtol=1e-6)
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


@pytest.mark.parametrize("version, client_of", [("1", cohere.Client), ("2", cohere.ClientV2)])
def test_cohere_client_reranks(shared_gateway, version, client_of):
    client = client_of(api_key="any", base_url=shared_gateway("cross-encoder").url)
    asked = {"model": "default", "query": "capital of France"}
    answer = client.rerank(documents=DOCUMENTS, top_n=3, **asked)
    raw = np.array([logits((b"capital of France", text.encode())) for text in DOCUMENTS])
    expected = 1 / (1 + np.exp(raw[:, 0] - raw[:, 1]))
    order = np.argsort(-expected)[:3]
    assert [one.index for one in answer.results] == order.tolist()
    assert_allclose([one.relevance_score for one in answer.results], expected[order], rtol=1e-5)
    assert answer.meta.api_version.version == version and answer.id
    if version == "1":
        given = client.rerank(documents=[{"text": text} for text in DOCUMENTS], return_documents=True, **asked)
        assert {one.document.text for one in given.results} == set(DOCUMENTS)
        with pytest.raises(cohere.BadRequestError, match="missing required field `text`"):
            client.rerank(documents=[{"title": "x"}], **asked)


TEXT = "a fine film"
# Of the kind of a model: the method of the client, its arguments, whether it is the first task, and the fields read.
CALLS = {
    "classifier": ("text_classification", (TEXT,), "text-classification", True, {"label", "score"}),
    "tagger": ("token_classification", (TEXT,), "token-classification", True, {"entity_group", "word", "start", "end"}),
    "pretrainer": ("fill_mask", ("a [MASK] film",), "fill-mask", False, {"token", "token_str", "sequence", "score"}),
}


def test_hugging_faces_client_reads_every_task(shared_gateway):
    for kind, (method, arguments, name, is_first, fields) in CALLS.items():
        for path in (f"/pipeline/{name}", "/") if is_first else (f"/pipeline/{name}",):
            found = getattr(huggingface_hub.InferenceClient(shared_gateway(kind).url + path), method)(*arguments)
            assert found and all(getattr(one, field) is not None for one in found for field in fields)
    embedder = huggingface_hub.InferenceClient(shared_gateway("prompted embedder").url)
    prompted = embedder.feature_extraction("a", prompt_name="query", normalize=False)
    assert_allclose(prompted, [vector(b"query: a")], rtol=1e-6)
    assert embedder.sentence_similarity("a", ["a", "b"])[0] == pytest.approx(1)
    answered = huggingface_hub.InferenceClient(shared_gateway("spans").url).question_answering("who?", "Al met Bo")
    assert (answered.answer, answered.start, answered.end) == ("Al", 0, 2)
    with pytest.raises(huggingface_hub.errors.BadRequestError, match="the field 'targets' is not known"):
        pretrainer = huggingface_hub.InferenceClient(shared_gateway("pretrainer").url + "/pipeline/fill-mask")
        pretrainer.fill_mask("a [MASK]", targets=["x"])


LONG = " ".join("abcdefghijklmnopqrst")
TYPES = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
ASKED = {
    "search_query": b"query: ", "search_document": b"passage: ", "classification": b"", "clustering": b""
}  # fmt: skip


@pytest.mark.parametrize("client_of", [cohere.Client, cohere.ClientV2])
def test_cohere_client_embeds(shared_gateway, client_of):
    client = client_of(api_key="any", base_url=shared_gateway("prompted embedder").url)
    for kind, prompt in ASKED.items():
        asked = {"texts": [TEXT], "model": "default", "input_type": kind, "embedding_types": TYPES}
        answer = client.embed(**asked)
        found = {name: getattr(answer.embeddings, name.replace("float", "float_")) for name in TYPES}
        assert_allclose(found["float"], [unit(vector(prompt + TEXT.encode()))], rtol=1e-6)
        assert found == shared_gateway("prompted embedder").http.post("/v2/embed", json=asked).json()["embeddings"]
    asked = {"texts": [LONG], "model": "default", "input_type": "clustering", "embedding_types": ["float"]}
    start = client.embed(truncate="START", **asked)
    assert_allclose(start.embeddings.float_[0], unit(vector(cut_left(LONG.encode()))), rtol=1e-6)
    with pytest.raises(cohere.core.ApiError, match=f"does not fit into the model's {LONGEST} tokens"):
        client.embed(truncate="NONE", **asked)


def test_cohere_client_reads_pieces_models_and_errors(shared_gateway):
    client = cohere.Client(api_key="any", base_url=shared_gateway("prompted embedder").url)
    assert len(client.embed(texts=[TEXT] * 200, model="default", input_type="clustering").embeddings) == 200
    pieces = client.tokenize(text=TEXT, model="default", offline=False)
    assert (pieces.tokens, pieces.token_strings) == ([101, 104, 104], TEXT.split())
    (model,) = client.models.list().models
    assert (model.name, model.endpoints, model.context_length) == ("default", ["embed"], LONGEST)
    assert client.models.get("default").name == "default"
    with pytest.raises(cohere.NotFoundError) as missing:
        client.models.get("other")
    assert missing.value.body["message"] == "the model 'other' does not exist"

"""Hugging Face's client on every task, and Cohere's besides reranking (test_clients.py)."""

import base64
import threading

import cohere
import huggingface_hub
import numpy as np
import pytest

from tests.serving.gateway.conftest import LABELS, LONGEST, cut_left, vector, wait_until

TEXT = "a fine film"
# Of the kind of a model: the method of the client, its arguments, whether it is the first task, and the fields read.
CALLS = {
    "classifier": ("text_classification", (TEXT,), "text-classification", True, {"label", "score"}),
    "tagger": ("token_classification", (TEXT,), "token-classification", True, {"entity_group", "word", "start", "end"}),
    "pretrainer": ("fill_mask", ("a [MASK] film",), "fill-mask", False, {"token", "token_str", "sequence", "score"}),
}


@pytest.mark.parametrize("kind", CALLS)
def test_hugging_faces_client_reads_every_task(shared_gateway, kind):
    method, arguments, name, is_first, fields = CALLS[kind]
    url = shared_gateway(kind).url
    for path in (f"/pipeline/{name}", "/") if is_first else (f"/pipeline/{name}",):
        found = getattr(huggingface_hub.InferenceClient(url + path), method)(*arguments)
        assert found and all(getattr(one, field) is not None for one in found for field in fields)
    embedder = huggingface_hub.InferenceClient(shared_gateway("prompted embedder").url)
    prompted = embedder.feature_extraction("a", prompt_name="query", normalize=False)
    np.testing.assert_allclose(prompted, [vector(b"query: a")], rtol=1e-6)
    assert embedder.sentence_similarity("a", ["a", "b"])[0] == pytest.approx(1)
    answered = huggingface_hub.InferenceClient(shared_gateway("spans").url).question_answering("who?", "Al met Bo")
    assert (answered.answer, answered.start, answered.end) == ("Al", 0, 2)
    with pytest.raises(huggingface_hub.errors.BadRequestError, match="the field 'targets' is not known"):
        huggingface_hub.InferenceClient(url + "/pipeline/fill-mask").fill_mask("a [MASK]", targets=["x"])


LONG = " ".join("abcdefghijklmnopqrst")
ASKED = {
    "search_query": b"query: ", "search_document": b"passage: ", "classification": b"", "clustering": b"",
}  # fmt: skip


@pytest.mark.parametrize("client_of", [cohere.Client, cohere.ClientV2])
def test_cohere_client_embeds(shared_gateway, client_of):
    client = client_of(api_key="any", base_url=shared_gateway("prompted embedder").url)
    for kind, prompt in ASKED.items():
        expected = vector(prompt + TEXT.encode())
        expected /= np.linalg.norm(expected)
        types = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
        answer = client.embed(texts=[TEXT], model="default", input_type=kind, embedding_types=types)
        found = {name: getattr(answer.embeddings, name.replace("float", "float_"))[0] for name in types}
        np.testing.assert_allclose(found["float"], expected, rtol=1e-6)
        np.testing.assert_allclose(np.frombuffer(base64.b64decode(found["base64"]), "<f4"), expected, rtol=1e-6)
        scaled = np.array(found["int8"])
        assert abs(scaled).max() == 127 and (np.array(found["uint8"]) - 128 == scaled).all()
        np.testing.assert_allclose(scaled / 127 * abs(expected).max(), expected, atol=abs(expected).max() / 250)
        bits = int("".join(str(int(one > 0)) for one in expected).ljust(8, "0"), 2)
        assert (found["ubinary"], found["binary"]) == ([bits], [bits - 128])
    start = client.embed(
        texts=[LONG], model="default", input_type="clustering", embedding_types=["float"], truncate="START"
    )
    expected = vector(cut_left(LONG.encode()))
    np.testing.assert_allclose(start.embeddings.float_[0], expected / np.linalg.norm(expected), rtol=1e-6)
    with pytest.raises(cohere.core.ApiError, match=f"does not fit into the model's {LONGEST} tokens"):
        client.embed(texts=[LONG], model="default", input_type="clustering", embedding_types=["float"], truncate="NONE")


def test_cohere_client_reads_pieces_models_and_errors(shared_gateway):
    client = cohere.Client(api_key="any", base_url=shared_gateway("prompted embedder").url)
    assert len(client.embed(texts=[TEXT] * 200, model="default", input_type="clustering").embeddings) == 200
    pieces = client.tokenize(text=TEXT, model="default", offline=False)
    assert (pieces.tokens, pieces.token_strings) == ([101, 104, 104], TEXT.split())
    assert client.detokenize(tokens=[5, 6], model="default", offline=False).text == "5 6"
    (model,) = client.models.list().models
    assert (model.name, model.endpoints, model.context_length) == ("default", ["embed"], LONGEST)
    assert client.models.get("default").name == "default"
    with pytest.raises(cohere.NotFoundError) as missing:
        client.models.get("other")
    assert missing.value.body["message"] == "the model 'other' does not exist"


def test_the_first_task_waits_until_all_are_known(fake_server, gateway_to):
    """Else a classifier would give pieces at first, which are known before classes."""
    model, stand_in = fake_server("classifier")
    gate = threading.Event()
    model.before = lambda asked, context: asked.model_spec.signature_name != "classify" or gate.wait(30)
    gateway = gateway_to(stand_in.target, live=False)
    wait_until(lambda: gateway.http.post("/tokenize", json={"inputs": "a"}).status_code == 200)
    early = gateway.http.post("/", json={"inputs": TEXT})
    assert early.status_code == 503 and early.json()["error_type"] == "not_ready"
    gate.set()
    wait_until(lambda: gateway.http.post("/", json={"inputs": TEXT}).status_code == 200)
    assert {one["label"] for one in gateway.http.post("/", json={"inputs": TEXT}).json()[0]} == {
        label.decode() for label in LABELS
    }

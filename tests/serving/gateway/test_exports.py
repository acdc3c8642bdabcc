"""Exports of this library behind the gateway that the embedded server holds."""

import contextlib

import httpx
import numpy as np
import openai
import pytest

from scripts.server import free_port
from serving.client import Client
from serving.model_server.flags import Options
from serving.model_server.server import ModelServer
from serving.model_server.status import StatusError
from tests.serving.gateway.conftest import wait_until

TEXTS = ["the capital of france is paris", "a dull film", "", "the cat sat on the mat " * 20]
PAIRS = {"inputs": ["first", "second"]}
FINE = {"inputs": ["text"], "labels": ["dull", "fine", "odd"]}
MODELS = {"embedder": None, "classifier": FINE, "regressor": PAIRS}


@pytest.fixture(scope="module")
def served(export_model, tmp_path_factory):
    """A server of three models; gives its gRPC target and the gateway's URL."""
    config = tmp_path_factory.mktemp("config") / "models.config"
    bases = {name: export_model(name, task, inputs="text", warm_up_lengths="").parent for name, task in MODELS.items()}
    entries = "".join(
        f'config {{ name: "{name}" base_path: "{base}" model_platform: "tensorflow" }}' for name, base in bases.items()
    )
    config.write_text(f"model_config_list {{ {entries} }}")
    options = Options(
        port=free_port(), gateway_port=free_port(), model_config_file=str(config), max_num_load_retries=0
    )  # fmt: skip
    server = ModelServer(options)
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(server.stop)
        server.start()
        url = f"http://127.0.0.1:{options.gateway_port}"

        def is_healthy():
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{url}/health").status_code == 200

        wait_until(is_healthy, 60)
        yield f"127.0.0.1:{options.port}", url


def ask(served, path, **body):
    answer = httpx.post(served[1] + path, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_embeddings_are_the_models_and_alike_alone_and_together(served):
    with Client(served[0], "embedder") as client:
        expected = client.predict_text(TEXTS)["embedding"]
        np.testing.assert_allclose(client.embed(TEXTS, max_batch_tokens=20), expected, atol=1e-5)
        lengths = client.predict({"text": TEXTS}, signature="tokenize", outputs=["lengths"])["lengths"]
    answer = openai.OpenAI(base_url=f"{served[1]}/v1", api_key="x").embeddings.create(model="embedder", input=TEXTS)
    np.testing.assert_allclose([one.embedding for one in answer.data], expected, atol=1e-5)
    assert answer.usage.prompt_tokens == lengths.sum() and lengths.max() == 48
    np.testing.assert_allclose(ask(served, "/embed", inputs=TEXTS[1])[0], expected[1], atol=1e-5)


def test_classes_have_their_names(served):
    with Client(served[0], "classifier") as client:
        expected = client.classify(TEXTS)
    answer = ask(served, "/predict", inputs=TEXTS, model="classifier")
    for row, label, probabilities in zip(answer, expected["label"], expected["probabilities"], strict=True):
        assert row[0]["label"] == label.decode()
        scores = {one["label"]: one["score"] for one in row}
        np.testing.assert_allclose([scores[name] for name in FINE["labels"]], probabilities, atol=1e-5)


def test_pairs_are_put_in_order(served):
    with Client(served[0], "regressor") as client:
        scores = client.rerank("where is paris", TEXTS)
    answer = ask(served, "/v2/rerank", query="where is paris", documents=TEXTS, top_n=2)["results"]
    assert [one["index"] for one in answer] == np.argsort(-scores)[:2].tolist()
    np.testing.assert_allclose([one["relevance_score"] for one in answer], np.sort(scores)[::-1][:2], atol=1e-5)


def test_pieces_and_what_there_is(served):
    (pieces,) = ask(served, "/tokenize", inputs="a dull film", model="embedder")
    assert [piece["text"] for piece in pieces] == ["[CLS]", "a", "dull", "film", "[SEP]"]
    info = httpx.get(f"{served[1]}/info").json()
    assert {model["id"]: model["can"] for model in info["models"]} == {
        "embedder": ["embed", "tokenize"],
        "classifier": ["classify", "tokenize"],
        "regressor": ["classify", "rerank", "tokenize"],
    }
    assert info["max_input_length"] == 48 and info["models"][1]["labels"] == FINE["labels"]


def test_a_gateway_that_cannot_be_is_refused_at_the_start(tmp_path):
    with pytest.raises(StatusError, match="needs a plain gRPC --port"):
        ModelServer(Options(port=0, gateway_port=8080, model_base_path=str(tmp_path)))

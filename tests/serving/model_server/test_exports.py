"""What serving.export writes, behind one server with its own batching and the gateway, asked by several clients."""

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import openai
import pytest
import tensorflow as tf
from tensorflow_serving.apis.classification_pb2 import ClassificationRequest
from tensorflow_serving.apis.regression_pb2 import RegressionRequest

from serving.client import Client
from serving.model_server import telemetry
from serving.model_server.flags import Options
from serving.model_server.server import ModelServer
from serving.model_server.status import StatusError
from tests.serving.conftest import LABELS
from tests.serving.gateway.conftest import wait_until
from tests.serving.model_server.conftest import free_port, start

TEXTS = ["the film is dull", "fine", "", "a fine river runs in paris the capital of france", "who sat in the cat"]
LONG = [*TEXTS, "the cat sat on the mat " * 20]
REQUESTS = {"classify": ClassificationRequest, "regress": RegressionRequest}
OTHERS = ["what is it", "", "a mat", "paris " * 9, "who"]


@pytest.fixture(scope="module")
def server(exported, tmp_path_factory):
    """A server of all kinds of exports, with batching; its `gateway` is a URL."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "batching").write_text(
        "max_batch_size { value: 8 } batch_timeout_micros { value: 30000 } num_batch_threads { value: 2 }\n"
        "max_enqueued_batches { value: 100 } pad_variable_length_inputs: true allowed_batch_sizes: 4\n"
        "allowed_batch_sizes: 8\n"
    )
    names = ("ids", "int8", "regressor", "embedder", "spans")
    entries = (f'name: "{name}" base_path: "{exported(name).parent}" model_platform: "tensorflow"' for name in names)
    entries = " ".join(f"config {{ {entry} }}" for entry in entries)
    (folder / "models").write_text(f"model_config_list {{ {entries} }}")
    running = start(
        model_config_file=str(folder / "models"), gateway_port=free_port(), enable_batching=True,
        batching_parameters_file=str(folder / "batching"),
    )  # fmt: skip
    running.gateway = f"http://127.0.0.1:{running.options.gateway_port}"
    yield running
    running.stop()


@pytest.fixture(scope="module")
def gateway(server):
    """gateway(path, **body): what the gateway answers."""

    def is_healthy():
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{server.gateway}/health").status_code == 200

    def ask(path, **body):
        answer = httpx.post(server.gateway + path, json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    wait_until(is_healthy, 60)
    return ask


def counted_own(model):
    """What the server counts of truncated texts, by the metric's name."""
    metrics = (telemetry.TEXT_TOKENS, telemetry.TRUNCATED_TOKENS, telemetry.TRUNCATED_INPUTS)
    names = ("text_tokens", "truncated_tokens", "truncated_inputs")
    page = telemetry.exposition()
    assert all(f"# TYPE :albert_tf:serving:{name} counter" in page for name in names)
    return {name: metric.labels(model)._value.get() for name, metric in zip(names, metrics)}


def by_length(*names):
    random, requests = np.random.default_rng(0), []
    for length in (3, 17, 5, 40, 9, 48, 4, 11, 30, 8, 3, 26):
        length = min(length, 24) if "segment_ids" in names and "lengths" in names else length
        ids = np.array([[2, *random.integers(5, 60, length - 2), 3]], np.int32)
        mask = {"input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
        whole = {"input_ids": ids, "lengths": np.array([length], np.int32)} | mask
        requests.append({name: whole[name] for name in names})
    return requests


def contexts():
    question = {"question": ["what is the capital of france"]}
    return [question | {"context": [f"{text} {text} " * count]} for text in TEXTS for count in (1, 4)]


@pytest.mark.parametrize(
    ("model", "signature", "requests"),
    [
        ("ids", "serving_default", by_length("input_ids", "lengths")),
        ("ids", "masked", by_length("input_ids", "input_mask", "segment_ids")),
        # Without padding, in 8 bits.
        ("int8", "ids", by_length("input_ids", "lengths", "segment_ids")),
        ("int8", "serving_default", [{"first": [one], "second": [other]} for one, other in zip(TEXTS, OTHERS)]),
        ("spans", "serving_default", contexts()),
    ],
)
def test_requests_of_mixed_lengths_answer_in_a_batch_as_alone(server, model, signature, requests):
    with Client(server.address, model, signature=signature) as client, ThreadPoolExecutor(8) as pool:
        alone = [client.predict(request) for request in requests]
        together = list(pool.map(client.predict, requests))
    for one, other in zip(alone, together, strict=True):
        for name, values in one.items():
            # Where a batch is longer or fuller than a request alone, what lies beyond is empty.
            found = other[name][tuple(slice(size) for size in values.shape)]
            assert len(other[name]) == 1
            if values.dtype.kind == "f":
                assert np.isfinite(values).all()
                np.testing.assert_allclose(found, values, atol=1e-5, err_msg=name)
            else:
                assert found.tolist() == values.tolist(), name
    assert model != "spans" or sum(bool(answer["answer"][0]) for answer in alone) == 8


def test_warm_up_runs_before_the_version_is_open(server, exported):
    records = list(tf.data.TFRecordDataset(str(exported("int8") / "assets.extra/tf_serving_warmup_requests")))
    # Three lengths, of which 64 and 128 are cut to the model's 24, for three signatures.
    assert len(records) == 2 * 3
    with Client(server.address, "int8") as client:
        assert client.status()[0].state == "AVAILABLE"


def test_truncated_texts_are_counted_once_and_whatever_is_asked(server):
    texts = {"first": ["the cat", "the film is dull " * 40, "fine " * 100], "second": ["", "a mat", ""]}
    with Client(server.address, "int8") as client:
        before = counted_own("int8")
        answer = client.predict(texts)
        client.predict(texts, outputs=["label"])
        client.predict(texts, outputs=["lengths", "truncated_tokens"], signature="tokenize")
    assert answer["truncated_tokens"][0] == 0 and (answer["truncated_tokens"][1:] > 0).all()
    counts = {name: value - before[name] for name, value in counted_own("int8").items()}
    assert counts == {
        "text_tokens": 2 * answer["text_tokens"].sum(),
        "truncated_tokens": 2 * answer["truncated_tokens"].sum(),
        "truncated_inputs": 2 * 2,
    }


@pytest.mark.parametrize(("model", "method"), [("int8", "classify"), ("regressor", "regress")])
def test_classify_and_regress_over_grpc_and_rest_answer_as_predict(server, model, method):
    columns = {"first": TEXTS, "second": OTHERS}
    with Client(server.address, model) as client:
        expected = client.predict(columns)["probabilities" if method == "classify" else "value"]
    rows = [dict(zip(columns, texts)) for texts in zip(*columns.values())]
    request = REQUESTS[method]()
    request.model_spec.name, request.model_spec.signature_name = model, method
    for row in rows:
        features = request.input.example_list.examples.add().features.feature
        for name, text in row.items():
            features[name].bytes_list.value.append(text.encode())
    status, answer, _ = server.http(
        "POST", f"/v1/models/{model}:{method}", {"signature_name": method, "examples": rows}
    )
    assert status == 200, answer
    if method == "classify":
        found = server.predictions.Classify(request, 30).result.classifications
        assert [entry.label for entry in found[0].classes] == [label for label, _ in answer["results"][1]] == LABELS
        found = [[entry.score for entry in row.classes] for row in found]
        of_rest = [[score for _, score in row] for row in answer["results"]]
    else:
        found = [entry.value for entry in server.predictions.Regress(request, 30).result.regressions]
        of_rest = answer["results"]
        by_columns = server.http("POST", f"/v1/models/{model}:predict", {"inputs": columns})[1]["outputs"]
        np.testing.assert_allclose(by_columns, expected, atol=1e-5)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(of_rest, expected, atol=1e-5)


@pytest.mark.slow
def test_the_command_line_client_sends_several_inputs_and_prints_the_answer(server, run_module):
    ask = lambda *flags: run_module("serving.client", f"--target={server.address}", "--model=spans", *flags)  # noqa: E731
    context = "paris is the capital of france"
    done = ask("--input=question=what is paris", f"--input=context={context}", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    readable = ask("--input=question=what is paris", f"--input=context={context}").stdout.splitlines()
    assert readable[0] == "row 0" and readable[1].startswith("  answer  ")
    for flags, message in [
        (["--text=who"], "give each by --input=NAME=VALUE"),
        (["--input=question=who"], "--input=context=... must be given"),
        (["--input=who"], "--input=who is not NAME=VALUE"),
        (["--text=who", "--input=question=who"], "choose one"),
    ]:
        failed = ask(*flags)
        assert failed.returncode == 1 and message in failed.stderr


def test_the_gateway_embeds_alike_alone_and_together(server, gateway):
    with Client(server.address, "embedder") as client:
        expected = client.predict_text(LONG)["embedding"]
        np.testing.assert_allclose(client.embed(LONG, max_batch_tokens=20), expected, atol=1e-5)
        lengths = client.predict({"text": LONG}, signature="tokenize", outputs=["lengths"])["lengths"]
    answer = openai.OpenAI(base_url=f"{server.gateway}/v1", api_key="x").embeddings.create(model="embedder", input=LONG)
    np.testing.assert_allclose([one.embedding for one in answer.data], expected, atol=1e-5)
    assert answer.usage.prompt_tokens == lengths.sum() and lengths.max() == 48
    np.testing.assert_allclose(gateway("/embed", inputs=LONG[1], model="embedder")[0], expected[1], atol=1e-5)


def test_the_gateway_names_classes_and_puts_pairs_in_order(server, gateway):
    with Client(server.address, "int8") as client:
        expected = client.classify(list(zip(TEXTS, OTHERS)))
    answer = gateway("/predict", inputs=[list(pair) for pair in zip(TEXTS, OTHERS)], model="int8")
    for row, label, probabilities in zip(answer, expected["label"], expected["probabilities"], strict=True):
        assert row[0]["label"] == label.decode()
        scores = {one["label"]: one["score"] for one in row}
        np.testing.assert_allclose([scores[name] for name in LABELS], probabilities, atol=1e-5)
    with Client(server.address, "regressor") as client:
        scores = client.rerank("where is paris", LONG)
    query = {"query": "where is paris", "documents": LONG, "top_n": 2, "model": "regressor"}
    answer = gateway("/v2/rerank", **query)["results"]
    assert [one["index"] for one in answer] == np.argsort(-scores)[:2].tolist()
    np.testing.assert_allclose([one["relevance_score"] for one in answer], np.sort(scores)[::-1][:2], atol=1e-5)


def test_the_gateway_shows_pieces_and_what_there_is(server, gateway):
    (pieces,) = gateway("/tokenize", inputs="a dull film", model="embedder")
    assert [piece["text"] for piece in pieces] == ["[CLS]", "a", "dull", "film", "[SEP]"]
    models = {model["id"]: model for model in httpx.get(f"{server.gateway}/info").json()["models"]}
    assert {name: model["can"] for name, model in models.items() if name != "ids"} == {
        "embedder": ["embed", "tokenize"],
        "int8": ["classify", "tokenize"],
        "regressor": ["classify", "rerank", "tokenize"],
        "spans": ["answer", "tokenize"],
    }
    assert models["int8"]["labels"] == LABELS


def test_a_gateway_that_cannot_be_is_refused_at_the_start(tmp_path):
    with pytest.raises(StatusError, match="needs a plain gRPC --port"):
        ModelServer(Options(port=0, gateway_port=8080, model_base_path=str(tmp_path)))

"""What serving.export writes, behind a server with its own batching, asked by several clients at once."""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import classification_pb2, regression_pb2

from serving import cpu
from serving.client import Client
from serving.model_server import telemetry

TASK = {"labels": ["dull", "so so", "fine"], "inputs": ["sentence"]}
TEXTS = ["the film is dull", "fine", "", "a fine river runs in paris the capital of france", "who sat in the cat"]


@pytest.fixture(scope="module")
def batching(tmp_path_factory):
    path = tmp_path_factory.mktemp("batching") / "parameters"
    path.write_text(
        "max_batch_size { value: 8 } batch_timeout_micros { value: 30000 } num_batch_threads { value: 2 }\n"
        "max_enqueued_batches { value: 100 } pad_variable_length_inputs: true allowed_batch_sizes: 4\n"
        "allowed_batch_sizes: 8\n"
    )
    return {"enable_batching": True, "batching_parameters_file": str(path)}


@pytest.fixture(scope="module")
def classifier(export_model):
    return export_model("classifier", TASK, inputs="ids")


@pytest.fixture(scope="module")
def text_classifier(export_model):
    return export_model("classifier", TASK, inputs="text", warm_up_signatures="serving_default,classify,tokenize")


@pytest.fixture(scope="module")
def reader(export_model):
    return export_model("spans", inputs="text", max_seq_length=24, doc_stride=5, warm_up_lengths="")


@pytest.fixture
def counted_own():
    """counted_own(model): what the server counts of truncated texts, by the metric's name."""
    metrics = (telemetry.TEXT_TOKENS, telemetry.TRUNCATED_TOKENS, telemetry.TRUNCATED_INPUTS)
    names = ("text_tokens", "truncated_tokens", "truncated_inputs")

    def read(model):
        page = telemetry.exposition()
        assert all(f"# TYPE :albert_tf:serving:{name} counter" in page for name in names)
        return {name: metric.labels(model)._value.get() for name, metric in zip(names, metrics)}

    return read


def ask_at_once(ask, items: list, clients: int = 8) -> tuple[list, list]:
    """Answers one after the other, and answers of as many clients at once."""
    alone = [ask(item) for item in items]
    with ThreadPoolExecutor(clients) as pool:
        return alone, list(pool.map(ask, items))


def assert_equal(alone: list, together: list) -> None:
    """Where a batch is longer or fuller than a request alone, what lies beyond is empty."""
    for one, other in zip(alone, together, strict=True):
        for name, values in one.items():
            found = other[name][tuple(slice(size) for size in values.shape)]
            if values.dtype.kind == "f":
                np.testing.assert_allclose(found, values, atol=1e-5, err_msg=name)
            else:
                assert found.tolist() == values.tolist(), name


def ids_requests(masked: bool) -> list[dict]:
    random = np.random.default_rng(0)
    requests = []
    for length in (3, 17, 5, 40, 9, 48, 4, 11, 30, 8, 3, 26):
        ids = np.array([[2, *random.integers(5, 60, length - 2), 3]], np.int32)
        mask = {"input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}
        requests.append({"input_ids": ids} | (mask if masked else {"lengths": np.array([length], np.int32)}))
    return requests


@pytest.mark.parametrize("signature", ["serving_default", "masked"])
def test_ids_of_mixed_lengths_answer_in_a_batch_as_alone(start_server, batching, classifier, signature):
    server = start_server(model_base_path=str(classifier.parent), **batching)
    with Client(server.address, "default", signature=signature) as client:
        alone, together = ask_at_once(client.predict, ids_requests(signature == "masked"))
    assert_equal(alone, together)
    assert {len(answer["logits"]) for answer in together} == {1}


@pytest.mark.parametrize("calibrated", [pytest.param(False, marks=pytest.mark.slow), True])
def test_int8_without_padding_answers_in_a_batch_as_alone(start_server, batching, export_model, tmp_path, calibrated):
    (tmp_path / "lines").write_text("\n".join(TEXTS))
    text = {"calibration_text": str(tmp_path / "lines")} if calibrated else {}
    version = export_model("classifier", TASK, compute="int8", padding="skipped", warm_up_lengths="16", **text)
    server = start_server(model_base_path=str(version.parent), **batching)
    with Client(server.address, "default") as client:
        alone, together = ask_at_once(client.predict, ids_requests(masked=False))
    assert_equal(alone, together)
    assert np.isfinite([answer["logits"] for answer in alone]).all()


@pytest.mark.slow
def test_contexts_of_mixed_lengths_answer_in_a_batch_as_alone(start_server, batching, reader):
    server = start_server(model_base_path=str(reader.parent), **batching)
    requests = [
        {"question": ["what is the capital of france"], "context": [f"{text} {text} " * repeats]}
        for text in TEXTS
        for repeats in (1, 4)
    ]
    with Client(server.address, "default") as client:
        alone, together = ask_at_once(client.predict, requests)
    assert_equal(alone, together)
    assert sum(bool(answer["answer"][0]) for answer in alone) == 8


def test_warm_up_runs_before_the_version_is_open(start_server, text_classifier):
    server = start_server(model_base_path=str(text_classifier.parent))
    records = list(tf.data.TFRecordDataset(str(text_classifier / "assets.extra/tf_serving_warmup_requests")))
    # Three lengths, of which 64 and 128 are cut to the model's 48, for three signatures.
    assert len(records) == 2 * 3
    with Client(server.address, "default") as client:
        assert client.status()[0].state == "AVAILABLE"
        labels = client.predict_text(TEXTS)["label"].tolist()
    assert set(labels) <= {b"dull", b"so so", b"fine"}


def test_truncated_texts_are_counted_once_and_whatever_is_asked(start_server, text_classifier, counted_own):
    server = start_server(model_base_path=str(text_classifier.parent))
    texts = {"text": ["the cat", "the film is dull " * 40, "fine " * 100]}
    with Client(server.address, "default") as client:
        before = counted_own("default")
        told = client.predict(texts)
        client.predict(texts, outputs=["label"])
        client.predict(texts, outputs=["lengths", "truncated_tokens"], signature="tokenize")
    assert told["truncated_tokens"][0] == 0 and (told["truncated_tokens"][1:] > 0).all()
    counts = {name: value - before[name] for name, value in counted_own("default").items()}
    assert counts == {
        "text_tokens": 2 * told["text_tokens"].sum(),
        "truncated_tokens": 2 * told["truncated_tokens"].sum(),
        "truncated_inputs": 2 * 2,
    }


def test_a_version_for_another_cpu_is_refused_and_the_others_go_on(
    start_server, export_model, classifier, tmp_path, monkeypatch
):
    shutil.copytree(classifier, tmp_path / "1")
    server = start_server(model_base_path=str(tmp_path), file_system_poll_wait_seconds=1)
    # As an export from a CPU whose like does not exist.
    monkeypatch.setitem(cpu.NEEDS, "float32", (("avx4096",),))
    os.rename(export_model("classifier", TASK, warm_up_lengths="8"), tmp_path / "2")
    with Client(server.address, "default") as client:
        deadline = time.monotonic() + 30
        while (states := {one.version: one for one in client.status()}).keys() != {1, 2} or states[2].state != "END":
            assert time.monotonic() < deadline, states
            time.sleep(0.1)
        assert states[1].state == "AVAILABLE"
        assert "exported for CPUs with avx4096, which this machine has not" in states[2].error
        assert client.predict_ids([[2, 8, 3]])["label"].shape == (1,)


def test_classify_over_grpc_and_rest(start_server, text_classifier):
    server = start_server(model_base_path=str(text_classifier.parent))
    with Client(server.address, "default") as client:
        expected = client.predict_text(TEXTS)["probabilities"]
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name, request.model_spec.signature_name = "default", "classify"
    for text in TEXTS:
        feature = request.input.example_list.examples.add().features.feature["text"]
        feature.bytes_list.value.append(text.encode())
    rows = server.predictions.Classify(request, 30).result.classifications
    assert [entry.label for entry in rows[0].classes] == TASK["labels"]
    np.testing.assert_allclose([[entry.score for entry in row.classes] for row in rows], expected, atol=1e-5)
    body = {"signature_name": "classify", "examples": [{"text": text} for text in TEXTS]}
    status, answer, _ = server.http("POST", "/v1/models/default:classify", body)
    assert status == 200 and [label for label, _ in answer["results"][1]] == TASK["labels"]
    np.testing.assert_allclose([[score for _, score in row] for row in answer["results"]], expected, atol=1e-5)


def test_regress_over_grpc_and_rest(start_server, export_model):
    version = export_model("regressor", {"inputs": ["sentence1", "sentence2"]}, inputs="ids")
    server = start_server(model_base_path=str(version.parent))
    rows = [[2, 8, 9, 3], [2, 11, 3]]
    segments = [[0, 0, 1, 1], [0, 1, 1]]
    with Client(server.address, "default") as client:
        expected = client.predict_ids(rows, segments)["value"]
    request = regression_pb2.RegressionRequest()
    request.model_spec.name, request.model_spec.signature_name = "default", "regress"
    for ids, kinds in zip(rows, segments):
        features = request.input.example_list.examples.add().features.feature
        features["input_ids"].int64_list.value.extend(ids)
        features["segment_ids"].int64_list.value.extend(kinds)
    values = [entry.value for entry in server.predictions.Regress(request, 30).result.regressions]
    np.testing.assert_allclose(values, expected, atol=1e-5)
    examples = [{"input_ids": ids, "segment_ids": kinds} for ids, kinds in zip(rows, segments)]
    status, answer, _ = server.http(
        "POST", "/v1/models/default:regress", {"signature_name": "regress", "examples": examples}
    )
    assert status == 200, answer
    np.testing.assert_allclose(answer["results"], expected, atol=1e-5)


@pytest.mark.slow
def test_the_command_line_client_sends_several_inputs_and_prints_the_answer(start_server, reader, run_module):
    server = start_server(model_base_path=str(reader.parent))
    ask = lambda *flags: run_module("serving.client", f"--target={server.address}", *flags)  # noqa: E731
    context = "paris is the capital of france"
    done = ask("--input=question=what is paris", f"--input=context={context}", "--json")
    assert done.returncode == 0, done.stderr
    assert '"answer": "' in done.stdout
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

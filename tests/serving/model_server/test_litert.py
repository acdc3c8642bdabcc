"""Versions that hold model.tflite, as our export writes them."""

import shutil
import threading
import time

import grpc
import numpy as np
import pytest

from serving.lite import LiteModel
from serving.model_server import core
from serving.model_server.status import StatusError
from serving.wire.tensors import to_numpy
from tests.servers import free_port, post
from tests.serving.conftest import LABELLED, LABELS
from tests.serving.gateway.conftest import wait_until_healthy
from tests.serving.model_server.conftest import predict_request, start, start_models, status_of, wait_until


def test_a_version_with_both_kinds_is_a_saved_model_unless_told_otherwise(start_server, tmp_path, half_plus_two):
    version = shutil.copytree(half_plus_two, tmp_path / "m") / "00000123"
    (version / "model.tflite").write_bytes(b"junk")
    assert start_server(model_base_path=tmp_path / "m").predict(2.0) == [3.0]
    assert start_server(prefer_tflite_model=True).predict(2.0) == [3.0]
    with pytest.raises(StatusError, match=r"00000123 has no litert\.json: of LiteRT, this server answers what"):
        start_server(model_base_path=tmp_path / "m", prefer_tflite_model=True)


@pytest.fixture(scope="module")
def lite(lite_version, tmp_path_factory):
    """A server of a LiteRT version of texts, `default`, and one of ids, `ids`."""
    kinds = {"default": "text", "ids": "ids"}
    folders = {name: lite_version("classifier", LABELLED, kind).parent for name, kind in kinds.items()}
    running = start_models(tmp_path_factory.mktemp("lite"), folders)
    yield running
    running.stop()


def labels_of(running, *texts, timeout=60):
    answer = running.predictions.Predict(predict_request(text=np.array(texts, object)), timeout)
    return list(answer.outputs["label"].string_val)


def test_a_lite_version_answers_over_grpc_and_rest_as_any_other(lite):
    alone = [labels_of(lite, text)[0] for text in (b"the cat", b"paris " * 60, b"")]
    assert labels_of(lite, b"the cat", b"paris " * 60, b"") == alone
    body = {"instances": ["the cat", ""]}
    rows = lite.http("POST", "/v1/models/default:predict", body)[1]["predictions"]
    assert [row["label"].encode() for row in rows] == [alone[0], alone[2]] and rows[0]["classes"] == LABELS
    classified = lite.http(
        "POST", "/v1/models/default:classify", {"signature_name": "classify", "examples": [{"text": "the cat"}]}
    )
    assert [label for label, _ in classified[1]["results"][0]] == LABELS
    metadata = lite.http("GET", "/v1/models/default/metadata")[1]["metadata"]["signature_def"]["signature_def"]
    assert metadata["serving_default"]["inputs"]["text"]["dtype"] == "DT_STRING"
    assert metadata["classify"]["method_name"] == "tensorflow/serving/classify"


GOOD = {"input_ids": [[5, 7, 9, 8]], "lengths": [4]}


@pytest.mark.parametrize(
    "changes",
    [
        {"input_ids": [5, 7, 9, 8]}, {"input_ids": [[[5, 7, 9, 8]]]}, {"input_ids": [[5, -7, 9, 8]]},
        {"input_ids": [[5, 10**6, 9, 8]]}, {"lengths": [-1]}, {"lengths": [0]}, {"lengths": [10**8]},
        {"lengths": [4, 4]}, {"lengths": [[4]]}, {"input_ids": [[]]}, {"input_ids": []},
        {"input_ids": [[5] * 41], "lengths": [41]}
    ],
    ids=str
)  # fmt: skip
def test_ids_that_lie_are_refused_and_change_no_later_answer(lite, changes):
    def logits(inputs, dtype="int32"):
        arrays = {name: np.array(values, dtype) for name, values in inputs.items()}
        return lite.predictions.Predict(predict_request("ids", **arrays), 60).outputs["logits"].SerializeToString()

    before = logits(GOOD)
    assert status_of(logits, GOOD | changes).startswith("INVALID_ARGUMENT")
    assert status_of(logits, GOOD, "int64").startswith("INVALID_ARGUMENT")
    assert logits(GOOD) == before


def test_a_deadline_ends_a_request_between_its_rows(lite):
    futures = [
        lite.predictions.Predict.future(predict_request(text=np.array([b"paris " * 38] * 5000, object)), 0.1)
        for _ in range(4)
    ]
    assert {future.code().name for future in futures} == {"DEADLINE_EXCEEDED"}
    assert labels_of(lite, b"the cat", timeout=20)


def test_a_version_that_is_copied_slowly_comes_when_it_is_whole(start_server, lite_version, tmp_path):
    source = lite_version("classifier", LABELLED)
    base = tmp_path / "m"
    shutil.copytree(source, base / "1")
    running = start_server(model_base_path=base)
    (base / "2").mkdir()
    for file in sorted(path for path in source.iterdir() if path.is_file()):
        content = file.read_bytes()
        for part in (content[: len(content) // 2], content):
            assert running.server.core._manager.available("default") == [1]
            (base / "2" / file.name).write_bytes(part)
            # A poll, and a load that fails.
            time.sleep(0.2)
            assert labels_of(running, b"the cat")
    wait_until(lambda: running.server.core._manager.available("default") == [2])
    assert labels_of(running, b"the cat")


def test_ten_clients_are_answered_while_versions_change_and_their_folders_go(start_server, lite_version, tmp_path):
    base, texts = tmp_path / "m", [b"the cat sat", b"paris " * 30, b"a"]
    versions = [lite_version(head, {}) for head in ("embedder", "cls embedder")]
    models = map(LiteModel, versions)
    expected = [[model.encode(text.decode(), normalize=False).tobytes() for text in texts] for model in models]
    shutil.copytree(versions[0], base / "1")
    running = start_server(model_base_path=base)
    stopped, seen, wrong = threading.Event(), set(), []

    def ask(place):
        while not stopped.wait(0.001):
            try:
                answer = running.predictions.Predict(predict_request(text=np.array([texts[place]], object)), 60)
            except grpc.RpcError as error:
                wrong.append(error)
                continue
            found = to_numpy(answer.outputs["embedding"])[0].tobytes()
            of = [number for number, vectors in enumerate(expected) if vectors[place] == found]
            seen.update(of)
            wrong.extend([found] * (not of))

    threads = [threading.Thread(target=ask, args=(number % len(texts),)) for number in range(10)]
    for thread in threads:
        thread.start()
    wait_until(lambda: seen == {0})
    shutil.copytree(versions[1], tmp_path / "new")
    (tmp_path / "new").rename(base / "2")
    wait_until(lambda: running.server.core._manager.available("default") == [2] and seen == {0, 1})
    # What was read once is needed no more.
    shutil.rmtree(base)
    seen.clear()
    wait_until(lambda: seen == {1})
    stopped.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_gateway_knows_the_tasks_of_a_lite_version(start_server, lite_version):
    port = free_port()
    start_server(model_base_path=lite_version("pretrainer", {}).parent, gateway_port=port)
    url = f"http://127.0.0.1:{port}"
    wait_until_healthy(url)
    answers = post(f"{url}/pipeline/fill-mask", {"inputs": "the [MASK] sat"})
    assert not any("[MASK]" in answer["sequence"] for answer in answers)
    assert len(post(f"{url}/v1/embeddings", {"input": ["the cat", "paris"]})["data"]) == 2


def test_a_saved_model_without_tensorflow_is_one_clear_line(half_plus_two, monkeypatch):
    def absent(name):
        raise ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")

    monkeypatch.setattr(core.importlib, "import_module", absent)
    with pytest.raises(StatusError, match="123 needs TensorFlow, which is not installed here: install albert-tf, or"):
        start(model_base_path=str(half_plus_two))

"""Versions that hold model.tflite: those of our export, and any other with --prefer_tflite_model."""

import json
import shutil
import subprocess
import sys
import threading
import time

import flatbuffers
import grpc
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

from serving.lite import LiteModel
from serving.model_server import core
from serving.model_server.status import StatusError
from serving.wire.protos import SignatureDef
from serving.wire.tensors import to_numpy
from tests.servers import free_port
from tests.serving.conftest import LABELS
from tests.serving.gateway.conftest import wait_until_healthy
from tests.serving.model_server.conftest import config_text, post, predict_request, start, status_of, wait_for
from tests.serving.model_server.models import signature


@pytest.fixture(scope="session")
def converted(made_once):
    """A version folder whose model.tflite computes x / 2 + 2, without metadata. Read only."""

    def convert(folder):
        class HalfPlusTwo(tf.Module):
            @signature(x=([None, 1], tf.float32))
            def run(self, x):
                return {"y": x / 2 + 2}

        module = HalfPlusTwo()
        tf.saved_model.save(module, str(folder / "saved"), signatures=module.run.get_concrete_function())
        (folder / "7").mkdir()
        converter = tf.lite.TFLiteConverter.from_saved_model(str(folder / "saved"))
        (folder / "7" / "model.tflite").write_bytes(converter.convert())

    return made_once("half_plus_two_tflite", convert) / "7"


@pytest.fixture
def start_with(start_server, tmp_path, converted):
    """Starts a server of the model with these signatures in its metadata, by their names."""

    def start(signatures, **options):
        version = shutil.copytree(converted, tmp_path / "m" / "7", dirs_exist_ok=True)
        store_signatures(version / "model.tflite", signatures)
        return start_server(model_base_path=tmp_path / "m", prefer_tflite_model=True, **options)

    return start


class RawText(bytes):
    """Bytes that a FlexBuffer builder takes for text, as C++ does."""

    def encode(self, encoding):
        return bytes(self)


def store_signatures(file, signatures):
    """Writes the metadata entry of TensorFlow Lite's signature_def_util into a model file."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for name, signature in signatures.items():
            builder.Key(name)
            builder.String(RawText(signature.SerializeToString()))
    model = schema.ModelT.InitFromPackedBuf(file.read_bytes(), 0)
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = list(builder.Finish())
    entry.name, entry.buffer = "signature_defs_metadata", len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or []), entry]
    packed = flatbuffers.Builder(1024)
    packed.Finish(model.Pack(packed), b"TFL3")
    file.write_bytes(bytes(packed.Output()))


def stored_signature(x="serving_default_x:0", y="PartitionedCall:0"):
    """A signature of the model's one input, as x, and one output, as y."""
    signature = SignatureDef(method_name="tensorflow/serving/predict")
    for infos, alias, name in ((signature.inputs, "x", x), (signature.outputs, "y", y)):
        infos[alias].name, infos[alias].dtype = name, 1
        infos[alias].tensor_shape.dim.add(size=-1)
    return signature


def test_answers_any_number_of_rows_by_each_signature_of_the_metadata(start_with):
    running = start_with({"serving_default": stored_signature(), "other": stored_signature()})
    assert running.predict(2.0) == [3.0]
    assert running.predict(2.0, 3.0, 4.0) == [3.0, 3.5, 4.0]
    assert running.predict(2.0, shape=(1,)) == [3.0]
    body = {"signature_name": "other", "instances": [[2.0]]}
    assert running.http("POST", "/v1/models/default:predict", body)[1] == {"predictions": [[3.0]]}
    assert running.http("GET", "/v1/models/default")[1]["model_version_status"][0]["version"] == "7"
    status, answer, _ = running.http("POST", "/v1/models/default:predict", {"inputs": {"x": [["a"]]}})
    assert (status, answer["error"][:10]) == (400, "JSON Value")
    status = status_of(running.predictions.Predict, predict_request(x=[[1]]))
    assert status.startswith("INVALID_ARGUMENT") and "INT32" in status
    # One more would end the process, inside XNNPACK.
    for rank, status in ((6, 200), (7, 400), (8, 400), (33, 400)):
        body = '{"inputs": ' + "[" * rank + "2.0" + "]" * rank + "}"
        assert running.http("POST", "/v1/models/default:predict", body)[0] == status
    assert running.predict(2.0) == [3.0]


@pytest.mark.parametrize("batching", [False, True])
def test_without_metadata_names_are_the_tensors(start_server, converted, batching):
    running = start_server(model_base_path=converted.parent, prefer_tflite_model=True, enable_batching=batching)
    metadata = running.http("GET", "/v1/models/default/metadata")[1]["metadata"]["signature_def"]["signature_def"]
    assert list(metadata) == ["serving_default"]
    assert list(metadata["serving_default"]["inputs"]) == ["serving_default_x"]
    status, body, _ = running.http("POST", "/v1/models/default:predict", {"instances": [{"serving_default_x": [2.0]}]})
    assert (status, body) == (200, {"predictions": [[3.0]]})


def test_metadata_may_name_tensors_with_a_suffix_but_no_others(start_with):
    with pytest.raises(StatusError, match="Signature input x references an unknown tensor: other"):
        start_with({"serving_default": stored_signature(x="other:0")})
    with pytest.raises(StatusError, match="Signature output y references an unknown tensor: serving_default_x"):
        start_with({"serving_default": stored_signature(y="serving_default_x:0")})


def test_a_version_with_both_kinds_is_a_saved_model_unless_told_otherwise(start_server, tmp_path, half_plus_two):
    version = shutil.copytree(half_plus_two, tmp_path / "m") / "00000123"
    (version / "model.tflite").write_bytes(b"junk")
    assert start_server(model_base_path=tmp_path / "m").predict(2.0) == [3.0]
    assert start_server(prefer_tflite_model=True).predict(2.0) == [3.0]
    with pytest.raises(StatusError, match=r"Failed to load model\.tflite"):
        start_server(model_base_path=tmp_path / "m", prefer_tflite_model=True)


@pytest.fixture(scope="module")
def lite(lite_version, tmp_path_factory):
    """A server of a LiteRT version of texts, `default`, and one of ids, `ids`."""
    task = {"labels": LABELS, "inputs": ["text"]}
    folders = {
        name: lite_version("classifier", task, kind).parent for name, kind in (("default", "text"), ("ids", "ids"))
    }
    file = tmp_path_factory.mktemp("lite") / "models.config"
    file.write_text(config_text(**folders))
    running = start(model_config_file=str(file))
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
        {"input_ids": [[5] * 41], "lengths": [41]},
    ],
    ids=str,
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
    source = lite_version("classifier", {"labels": LABELS, "inputs": ["text"]})
    base = tmp_path / "m"
    shutil.copytree(source, base / "1")
    running = start_server(model_base_path=base)
    (base / "2").mkdir()
    for file in sorted(source.iterdir()):
        content = file.read_bytes()
        for part in (content[: len(content) // 2], content):
            assert running.server.core._manager.available("default") == [1]
            (base / "2" / file.name).write_bytes(part)
            # A poll, and a load that fails.
            time.sleep(0.2)
            assert labels_of(running, b"the cat")
    assert wait_for(lambda: running.server.core._manager.available("default") == [2])
    assert labels_of(running, b"the cat")


def test_ten_clients_are_answered_while_versions_change_and_their_folders_go(start_server, lite_version, tmp_path):
    base, texts = tmp_path / "m", [b"the cat sat", b"paris " * 30, b"a"]
    versions = [lite_version(head, {}) for head in ("embedder", "cls embedder")]
    expected = [vectors_of(LiteModel(version), texts) for version in versions]
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
    assert wait_for(lambda: seen == {0})
    shutil.copytree(versions[1], tmp_path / "new")
    (tmp_path / "new").rename(base / "2")
    assert wait_for(lambda: running.server.core._manager.available("default") == [2] and seen == {0, 1})
    # What was read once is needed no more.
    shutil.rmtree(base)
    seen.clear()
    assert wait_for(lambda: seen == {1})
    stopped.set()
    for thread in threads:
        thread.join()
    assert not wrong


def vectors_of(model, texts):
    return [model.encode(text.decode(), normalize=False).tobytes() for text in texts]


def test_neither_server_imports_tensorflow_before_a_version_needs_it():
    code = """
import sys
sys.modules |= dict.fromkeys(("tensorflow", "tensorflow_serving", "tensorflow_text", "keras", "numba"))
import serving.gateway.__main__, serving.gateway.app, serving.lite.start, serving.model_server.__main__
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def test_the_gateway_knows_the_tasks_of_a_lite_version(start_server, lite_version):
    port = free_port()
    start_server(model_base_path=lite_version("pretrainer", {}).parent, gateway_port=port)
    wait_until_healthy(f"http://127.0.0.1:{port}")
    _, body = post(port, "/pipeline/fill-mask", json.dumps({"inputs": "the [MASK] sat"}))
    assert not any("[MASK]" in answer["sequence"] for answer in json.loads(body))
    status, body = post(port, "/v1/embeddings", json.dumps({"input": ["the cat", "paris"]}))
    assert (status, len(json.loads(body)["data"])) == (200, 2)


def test_a_saved_model_without_tensorflow_is_one_clear_line(half_plus_two, monkeypatch):
    def absent(name):
        raise ModuleNotFoundError("No module named 'tensorflow'", name="tensorflow")

    monkeypatch.setattr(core.importlib, "import_module", absent)
    with pytest.raises(StatusError, match="123 needs TensorFlow, which is not installed here: install albert-tf, or"):
        start(model_base_path=str(half_plus_two))

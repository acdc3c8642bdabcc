"""--prefer_tflite_model: versions that hold model.tflite."""

import shutil

import flatbuffers
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from flatbuffers import flexbuffers

from serving.model_server.status import StatusError
from serving.wire.protos import SignatureDef
from tests.serving.model_server.conftest import predict_request, status_of
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

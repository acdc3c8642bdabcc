"""--prefer_tflite_model: versions that hold model.tflite."""

import flatbuffers
import pytest
import tensorflow as tf
from flatbuffers import flexbuffers
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.lite.python import schema_py_generated as schema

from serving.model_server.status import StatusError
from tests.serving.model_server.conftest import predict_request, status_of
from tests.serving.model_server.models import signature

pytestmark = pytest.mark.filterwarnings(r"ignore:\s*Warning. tf.lite.Interpreter is deprecated:UserWarning")


def convert(folder, with_signature=True):
    class HalfPlusTwo(tf.Module):
        @signature(x=([None, 1], tf.float32))
        def run(self, x):
            return {"y": x / 2 + 2}

    module = HalfPlusTwo()
    if with_signature:
        tf.saved_model.save(module, str(folder / "saved"), signatures=module.run.get_concrete_function())
        converter = tf.lite.TFLiteConverter.from_saved_model(str(folder / "saved"))
    else:
        converter = tf.lite.TFLiteConverter.from_concrete_functions([module.run.get_concrete_function()])
    version = folder / "m" / "7"
    version.mkdir(parents=True)
    (version / "model.tflite").write_bytes(converter.convert())
    return folder / "m"


def test_answers_any_number_of_rows(start_server, tmp_path):
    running = start_server(model_base_path=convert(tmp_path), prefer_tflite_model=True)
    assert running.predict(2.0) == [3.0]
    assert running.predict(2.0, 3.0, 4.0) == [3.0, 3.5, 4.0]
    assert running.predict(2.0) == [3.0]
    assert running.http("POST", "/v1/models/default:predict", {"instances": [[2.0]]})[1] == {"predictions": [[3.0]]}
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


def test_without_signatures(start_server, tmp_path):
    running = start_server(
        model_base_path=str(convert(tmp_path, with_signature=False)), prefer_tflite_model=True, enable_batching=True
    )
    answer = running.http("GET", "/v1/models/default/metadata")[1]["metadata"]["signature_def"]["signature_def"]
    (name,) = answer["serving_default"]["inputs"]
    status, body, _ = running.http("POST", "/v1/models/default:predict", {"instances": [{name: [2.0]}]})
    assert (status, body) == (200, {"predictions": [[3.0]]})


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


def stored_signature(base):
    """That of the model's one input, as x, and one output, as y."""
    details = tf.lite.Interpreter(model_path=str(base / "7" / "model.tflite"))
    signature = meta_graph_pb2.SignatureDef(method_name="tensorflow/serving/predict")
    for infos, alias, found in (
        (signature.inputs, "x", details.get_input_details()),
        (signature.outputs, "y", details.get_output_details()),
    ):
        infos[alias].name = found[0]["name"].removesuffix(":0") + ":0"
        infos[alias].tensor_shape.dim.add(size=-1)
    return signature


def test_signature_in_the_metadata_names_inputs_and_outputs(start_server, tmp_path):
    base = convert(tmp_path, with_signature=False)
    store_signatures(base / "7" / "model.tflite", {"any_name": stored_signature(base)})
    running = start_server(model_base_path=base, prefer_tflite_model=True)
    assert running.predict(2.0, shape=(1,)) == [3.0]
    assert running.predict(2.0, 3.0) == [3.0, 3.5]


def test_metadata_that_names_no_tensor_or_two_signatures(start_server, tmp_path):
    base = convert(tmp_path, with_signature=False)
    file = base / "7" / "model.tflite"
    plain = file.read_bytes()
    signature = stored_signature(base)
    store_signatures(file, {"a": signature, "b": signature})
    with pytest.raises(StatusError, match="Multiple SignatureDefs found in TfLite model"):
        start_server(model_base_path=base, prefer_tflite_model=True)
    file.write_bytes(plain)
    signature.inputs["x"].name = "other:0"
    store_signatures(file, {"a": signature})
    with pytest.raises(StatusError, match="Cannot find signature def input name from tflite input tensor"):
        start_server(model_base_path=base, prefer_tflite_model=True)


def test_saved_models_still_load(start_server):
    assert start_server(prefer_tflite_model=True).predict(2.0) == [3.0]


def test_no_model_at_all(start_server, tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.tflite").write_bytes(b"junk")
    with pytest.raises(StatusError, match=r"Failed to load model\.tflite"):
        start_server(model_base_path=tmp_path / "m", prefer_tflite_model=True)

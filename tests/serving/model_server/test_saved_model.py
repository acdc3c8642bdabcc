"""Loading: what is refused before TensorFlow reads it, and what a version may hold."""

import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from serving.model_server import servable
from serving.model_server.servable import SavedModel
from serving.model_server.status import StatusError
from tests.serving.model_server.conftest import predict_request
from tests.serving.model_server.models import edited

tf1 = tf.compat.v1


def test_missing_junk_and_wrong_tags(tmp_path, half_plus_two):
    with pytest.raises(StatusError, match="Could not find SavedModel"):
        SavedModel(str(tmp_path))
    (tmp_path / "saved_model.pb").write_bytes(b"junk")
    with pytest.raises(StatusError, match="as binary proto") as caught:
        SavedModel(str(tmp_path))
    assert caught.value.code.name == "DATA_LOSS"
    with pytest.raises(StatusError, match=r"Could not find meta graph def matching supplied tags: \{ serve gpu \}"):
        SavedModel(str(half_plus_two / "00000123"), ["serve", "gpu"])


class Lookup(tf.Module):
    """Reads a vocabulary file that is saved with the model."""

    def __init__(self, path):
        super().__init__()
        self.table = tf.lookup.StaticVocabularyTable(
            tf.lookup.TextFileInitializer(
                path, tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
            ),
            1,
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, words):
        return {"ids": self.table.lookup(words)}


@pytest.fixture
def with_asset(tmp_path):
    (tmp_path / "words.txt").write_text("a\nb\n")
    module = Lookup(str(tmp_path / "words.txt"))
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=module.__call__.get_concrete_function())
    return tmp_path / "m"


def test_tables_and_assets(with_asset):
    model = SavedModel(str(with_asset))
    signature = model.signatures["serving_default"]
    feeds = {signature.inputs["words"].name: np.array([b"b", b"a", b"zz"], object)}
    (ids,) = model.run(feeds, [signature.outputs["ids"].name])
    assert ids.tolist() == [1, 0, 2]
    model.close()


@pytest.mark.parametrize("name", ["../../secret.txt", "/etc/hostname"])
def test_assets_outside_the_model_are_refused(with_asset, name):
    def rename(graph):
        graph.asset_file_def[0].filename = name

    edited(with_asset, rename)
    with pytest.raises(StatusError, match="lies outside the model's folder"):
        SavedModel(str(with_asset))


def test_a_closed_model_leaves_nothing_behind(half_plus_two, monkeypatch):
    monkeypatch.setattr(servable, "gc", gc)
    model = SavedModel(str(half_plus_two / "00000123"))
    with pytest.raises(StatusError, match="nobody:0, specified in either feed_devices or fetch_devices was not found"):
        model.run({}, ["nobody:0"])
    graph = weakref.ref(model._graph)
    model.close()
    assert graph() is None


def test_counter_of_reference_variables(start_server, tmp_path):
    """TF1 variables: outputs have the dtype float_ref, and are answered as float."""
    with tf.Graph().as_default(), tf1.Session() as session:
        counter = tf1.Variable(0.0, use_resource=False, name="counter")
        increase = tf1.assign_add(counter, 1.0)
        outputs = {"get": counter, "increase": increase}
        signatures = {
            name: tf1.saved_model.build_signature_def(
                {}, {"output": tf1.saved_model.build_tensor_info(tensor)}, "tensorflow/serving/predict"
            )
            for name, tensor in outputs.items()
        }
        session.run(tf1.global_variables_initializer())
        builder = tf1.saved_model.Builder(str(tmp_path / "m" / "1"))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()
    running = start_server(model_base_path=tmp_path / "m")
    for name, value in (("get", 0.0), ("increase", 1.0), ("increase", 2.0), ("get", 2.0)):
        output = running.predictions.Predict(predict_request(signature=name)).outputs["output"]
        assert (output.dtype, list(output.float_val)) == (tf.float32.as_datatype_enum, [value])

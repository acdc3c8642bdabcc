"""Loading: what is refused before TensorFlow reads it, and what a version may hold."""

import gc
import itertools
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from serving.model_server.flags import ServerOptions
from serving.model_server.status import StatusError
from serving.model_server.versions import saved_model
from serving.model_server.versions.manager import Servable
from serving.model_server.versions.saved_model import SavedModel
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
        SavedModel(str(half_plus_two / "00000123"), ServerOptions(saved_model_tags="serve,gpu"))


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
    monkeypatch.setattr(saved_model, "gc", gc)
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


def test_combinations_of_outputs_are_bounded():
    """Each one costs 150 KB of TensorFlow's for good; 1,500 output filters were 160 MB."""
    signature, fetched = meta_graph_pb2.SignatureDef(), []
    names = [f"y{index}:0" for index in range(10)]
    signature.inputs["x"].name = "x:0"
    for name in names:
        signature.outputs[name].name = name

    def run(feeds, fetches, timeout):
        """Answers every output with its own name."""
        fetched.append(tuple(fetches))
        return [np.array(name) for name in fetches]

    servable = Servable("m", 1, SimpleNamespace(signatures={"serving_default": signature}, run=run, close=None))
    for fetches in itertools.chain.from_iterable(itertools.combinations(names, size) for size in range(1, 10)):
        answer = servable.run("Predict", {"x:0": np.zeros(1)}, fetches)
        assert [value.item() for value in answer] == list(fetches)
    assert len(set(fetched)) <= 65
    assert fetched[-1] == tuple(names)
    servable.run("Predict", {"x:0": np.zeros(1)}, [names[3]])
    assert fetched[-1] == (names[3],), "what was asked for before is still run alone"

"""Performance by counts, without a clock: what a change must not make larger unseen.

Each number is pinned for the TensorFlow of requirements.txt. To change one on purpose, run this file, write what
the failure shows in its place, and say in CHANGELOG.md what a larger one is worth. System calls of a request are not
counted: how often gRPC's threads wake one another is another number in every run.
"""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.training.loop.devices import Devices
from albert_tf.training.loop.steps import Steps
from serving.exportable import ExportOptions, make_exportable
from serving.exporting import save
from serving.inference import InferenceEncoder
from tests.conftest import ROOT

pinned = pytest.mark.skipif(not tf.__version__.startswith("2.21."), reason="the counts are those of TensorFlow 2.21")
# By family, and whether for a CPU with AVX2 alone: nodes of an encoder's graph with all that it calls, and transposes.
ENCODERS = {("albert", False): (906, 3), ("albert", True): (926, 9), ("xlnet", False): (1070, 3)}
# Traces of a training step over batches of three lengths, nodes of its graph, transposes among them.
TRAINING_STEP = (2, 2249, 22)
# Nodes of all signatures of a pretrainer by ids, functions in their graphs, how often the encoder was traced for them
# (with and without its vectors of tokens, of one row and of several), and bytes beside 4 a weight.
EXPORT = (2941, 42, 4, 640_000)
# Which large packages `--help` imports, and how many modules of our own at most.
LARGE = {"tensorflow", "keras", "jax", "torch", "matplotlib", "numba", "numpy", "sentencepiece", "grpc", "httpx"}
HELP = {
    "serving.model_server": (set(), 15),
    "serving.client": ({"grpc", "numpy"}, 27),
    "serving.gateway": ({"grpc", "numpy"}, 29),
    "serving.export": ({"numpy"}, 46),
    "albert_tf.run_pretraining": ({"numpy"}, 47),
    "albert_tf.run_finetuning": ({"numpy"}, 56),
    "tfrecords.create_pretraining_data": ({"numpy", "numba"}, 42),
}


def nodes_of(graph):
    return [*graph.node, *(node for function in graph.library.function for node in function.node_def)]


def transposes(nodes):
    return sum(node.op == "Transpose" for node in nodes)


@pytest.fixture(autouse=True)
def graphs_for(monkeypatch):
    """graphs_for(only_avx2): whichever CPU this machine has, what graphs are for; at first not for AVX2 alone."""

    def make(only_avx2):
        monkeypatch.setattr("serving.inference.encoder.has_only_avx2", lambda: only_avx2)

    make(False)
    return make


@pinned
@pytest.mark.parametrize("family, only_avx2", ENCODERS)
def test_encoders_have_graphs_of_one_size_however_deep(make_model, graphs_for, family, only_avx2):
    graphs_for(only_avx2)
    for depth in (2, 12):
        exportable = make_exportable(make_model("encoder", family=family, num_hidden_layers=depth), ExportOptions(24))
        nodes = nodes_of(exportable.signatures()["serving_default"].concrete().graph.as_graph_def())
        assert (len(nodes), transposes(nodes)) == ENCODERS[family, only_avx2], depth


@pinned
def test_a_training_step_is_traced_once_for_batches_of_all_lengths(make_model):
    model = make_model("classifier")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(), loss=loss, jit_compile=False)
    specs = {"input_ids": tf.TensorSpec([None, None], tf.int32)}, tf.TensorSpec([None], tf.int32)
    rows = [({"input_ids": np.ones((2, length), np.int32)}, np.zeros(2, np.int32)) for length in (8, 16, 12)]
    steps = Steps(model, Devices(), jit_compile=False)
    batches = steps.batches(lambda *_: tf.data.Dataset.from_generator(lambda: rows, output_signature=specs), True)
    for batch in batches():
        steps.train(batch)
    step = steps._update
    nodes = nodes_of(step.get_concrete_function(*step.input_signature).graph.as_graph_def())
    # tf.function traces twice what makes variables, which the optimizer does.
    assert (step.experimental_get_tracing_count(), len(nodes), transposes(nodes)) == TRAINING_STEP


@pinned
def test_an_export_stores_every_weight_once_and_traces_the_encoder_once(make_model, tmp_path, monkeypatch):
    traced, begin = [], InferenceEncoder._begin
    monkeypatch.setattr(
        InferenceEncoder, "_begin", lambda *args, **options: traced.append(1) or begin(*args, **options)
    )
    model = make_model("pretrainer", hidden_size=128, intermediate_size=512, num_hidden_layers=6)
    save(make_exportable(model, ExportOptions(48)), tmp_path / "1")
    saved = saved_model_pb2.SavedModel.FromString((tmp_path / "1" / "saved_model.pb").read_bytes())
    graph = saved.meta_graphs[0].graph_def
    stored = sum(file.stat().st_size for file in (tmp_path / "1").rglob("*") if file.is_file())
    beside = stored - 4 * model.count_params()
    nodes, functions, encoders, more = EXPORT
    assert (len(nodes_of(graph)), len(graph.library.function), len(traced)) == (nodes, functions, encoders)
    assert 0 < beside <= more


@pytest.mark.parametrize("command", HELP)
def test_help_imports_little(command):
    lines = (
        "import atexit, runpy, sys; sys.argv = [sys.argv[1], '--help']; "
        "sys.orig_argv = ['python', '-m', *sys.argv]; "
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    )
    said = subprocess.run([sys.executable, "-c", lines, command], cwd=ROOT, capture_output=True, text=True, check=True)
    roots = [module.split(".")[0] for module in said.stderr.split()]
    large, most = HELP[command]
    assert LARGE.intersection(roots) == large
    assert sum(root in ("albert_tf", "serving", "tfrecords") for root in roots) <= most

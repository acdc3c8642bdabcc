"""What an export leaves on disk: known ops, tables once, a manifest that tells the truth; published checkpoints."""

import hashlib
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the operations of exports that other processes wrote
from tensorflow.core.protobuf import saved_model_pb2

from serving import check as check_module
from serving.exportable import CLASSIFY, PREDICT, REGRESS, ExportOptions, make_exportable
from serving.exporting import save
from serving.manifest import read_manifest
from tests.refusals import refused
from tests.serving.conftest import EXPORTS
from tests.serving.test_counts import nodes_of
from tests.slow_groups import some_slow

# Beyond core TensorFlow; tensorflow_model_server has linked these since 2.8.
WORDPIECE_OPS = {"WordpieceTokenizeWithOffsets"}
SENTENCEPIECE_OPS = {"SentencepieceOp", "SentencepieceTokenizeOp"}


def graph_of(version):
    message = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    return message.meta_graphs[0]


# What no test of the default suite has saved is saved in the slow one.
QUICK = ("ids", "int8", "xlnet")


# More than 5 s for the first that asks for an export: it is written then, the one of 8 bits with a process of its own.
@pytest.mark.parametrize("name", some_slow(EXPORTS, QUICK))
def test_only_ops_that_old_servers_have_and_large_tables_once(exported, name):
    graph = graph_of(exported(name)).graph_def
    nodes = nodes_of(graph)
    extra = {one.op for one in nodes if not hasattr(tf.raw_ops, one.op) and one.op != "NoOp" and one.op[0] != "_"}
    by_text = EXPORTS[name][3].get("inputs") == "text"
    assert extra == ((SENTENCEPIECE_OPS if name == "pretrainer" else WORDPIECE_OPS) if by_text else set())
    large = [node for node in nodes if node.op == "Const" and node.ByteSize() > 20_000]
    # One number a Unicode character of the pages that differ, and what each becomes.
    assert len(large) <= 2 and {node.name for node in large} <= {node.name for node in graph.node}
    assert by_text == bool(large) or name == "pretrainer"
    assert graph.ByteSize() < (1_650_000 if name == "int8" else 2_100_000)


@pytest.mark.parametrize("name", some_slow(["int8", "regressor"], QUICK))
def test_signatures_are_of_the_method_that_real_servers_look_at(exported, name):
    signatures = graph_of(exported(name)).signature_def.items()
    methods = {key: one.method_name for key, one in signatures if key[0] != "_"}
    own = {"classify": CLASSIFY, "regress": REGRESS}
    assert methods == {key: own.get(key, PREDICT) for key in methods} and own.keys() & methods.keys()


def test_manifest(exported):
    version, task = exported("int8"), EXPORTS["int8"][2]
    manifest = read_manifest(version)
    assert manifest["model"] == "AlbertClassifier" and manifest["config"]["hidden_size"] == 16
    assert manifest["task"] == task and manifest["metrics"] == task["metrics"]
    assert manifest["compute"]["compute"] == "int8" and manifest["max_seq_length"] == 24
    assert "oneDNN" in manifest["compute"]["requires"]
    assert manifest["signatures"]["serving_default"] == {"text": "string [any]"}
    # int8 is not exact, and the check, in a process of its own, has seen it.
    assert 1e-5 < manifest["check"]["logits"] < 0.3 and 1e-5 < manifest["check"]["text logits"] < 0.3
    for name, digest in manifest["files_sha256"].items():
        assert hashlib.sha256((version / name).read_bytes()).hexdigest() == digest
    assert {"saved_model.pb", "variables/variables.index"} <= manifest["files_sha256"].keys()


def test_a_check_whose_process_fails_is_an_error(monkeypatch, make_model, serve):
    """The process is really started by `exported("int8")`."""

    def fail(version, calls):
        raise RuntimeError("no SavedModel")

    monkeypatch.setattr(check_module, "run_calls", fail)
    _, served = serve("classifier")
    with refused("the export failed its check: no SavedModel"):
        check_module.check(None, make_model("classifier"), served.exportable)


@pytest.mark.parametrize(
    "name, size, words",
    [
        ("saved_model.pb", 1000, "loading: "),
        ("variables/variables.data-00000-of-00001", 100, "loading: "),
        # The same graph under other signatures.
        ("", 0, "the signature serving_default: "),
    ],
)
def test_every_signature_is_asked(exported, tmp_path, serve, name, size, words):
    shutil.copytree(exported("ids" if name else "int8"), tmp_path / "broken")
    if name:
        os.truncate(tmp_path / "broken" / name, size)
    _, served = serve("classifier")
    with refused(f"the export failed its check: {words}"):
        check_module.ask_once(tmp_path / "broken", served.exportable)


def test_numbers_that_are_none_are_refused_at_the_export(tmp_path, make_model, serve):
    model = make_model("embedder")
    weights = model.get_weights()
    try:
        model.set_weights([weights[0] * np.nan, *weights[1:]])
        exportable = make_exportable(model, ExportOptions(max_seq_length=16))
        save(exportable, tmp_path)
        with refused("its output embedding is NaN or infinite"):
            check_module.ask_once(tmp_path, exportable)
    finally:
        model.set_weights(weights)

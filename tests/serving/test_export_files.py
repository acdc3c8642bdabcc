"""What an export leaves on disk: known ops, tables once, a manifest that tells the truth; published checkpoints."""

import hashlib
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.checkpoints import save_huggingface, save_official
from albert_tf.loading import load
from serving import check as check_module
from tests.serving.conftest import EXPORTS
from tfrecords.base import files
from tfrecords.base.errors import UserError

# Beyond core TensorFlow; tensorflow_model_server has linked these since 2.8.
WORDPIECE_OPS = {"WordpieceTokenizeWithOffsets"}
SENTENCEPIECE_OPS = {"SentencepieceOp", "SentencepieceTokenizeOp"}


def nodes_of(version):
    message = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    graph = message.meta_graphs[0].graph_def
    return graph.node, [*graph.node, *(node for function in graph.library.function for node in function.node_def)]


@pytest.mark.parametrize("name", EXPORTS)
def test_only_ops_that_old_servers_have_and_large_tables_once(exported, name):
    version = exported(name)
    top, nodes = nodes_of(version)
    ops = {node.op for node in nodes}
    extra = {op for op in ops if not hasattr(tf.raw_ops, op) and op != "NoOp" and op[0] != "_"}
    by_text = EXPORTS[name][3].get("inputs") == "text"
    assert extra == ((SENTENCEPIECE_OPS if name == "pretrainer" else WORDPIECE_OPS) if by_text else set())
    large = [node for node in nodes if node.op == "Const" and node.ByteSize() > 20_000]
    # One number a Unicode character of the pages that differ, and what each becomes.
    assert len(large) <= 2 and {node.name for node in large} <= {node.name for node in top}
    assert by_text == bool(large) or name == "pretrainer"
    assert (version / "saved_model.pb").stat().st_size < (1_650_000 if name == "int8" else 2_000_000)


def test_manifest(exported):
    version, task = exported("int8"), EXPORTS["int8"][2]
    manifest = json.loads((version / "assets.extra/manifest.json").read_text())
    assert manifest["model"] == "AlbertClassifier" and manifest["config"]["hidden_size"] == 16
    assert manifest["task"] == task and manifest["metrics"] == task["metrics"]
    assert manifest["compute"]["compute"] == "int8" and manifest["max_seq_length"] == 24
    assert "oneDNN" in manifest["compute"]["requires"]
    assert manifest["signatures"]["serving_default"] == {"first": "string [any]", "second": "string [any]"}
    # int8 is not exact, and the check, in a process of its own, has seen it.
    assert 1e-5 < manifest["check"]["logits"] < 0.3 and 1e-5 < manifest["check"]["text logits"] < 0.3
    for name, digest in manifest["files_sha256"].items():
        assert hashlib.sha256((version / name).read_bytes()).hexdigest() == digest
    assert {"saved_model.pb", "variables/variables.index"} <= manifest["files_sha256"].keys()
    assert manifest["memory"] is None


def test_a_manifest_says_what_a_document_remembers(exported):
    manifest = files.read_json(exported("xlnet") / "assets.extra/manifest.json")
    assert manifest["memory"]["first_row"] == "zeros, with memory_lengths 0"
    assert manifest["signatures"]["stateful"]["memory"] == "float32 [any, 2, 8, 16]"


def test_an_export_that_does_not_load_is_no_version(exported, tmp_path, make_model, serve):
    shutil.copytree(exported("ids"), tmp_path / "broken")
    os.truncate(tmp_path / "broken" / "saved_model.pb", 1000)
    _, served = serve("classifier")
    with pytest.raises(UserError, match="the export failed its check: "):
        check_module.check(tmp_path / "broken", make_model("classifier"), served.exportable)


@pytest.mark.slow
def test_int8_passes_its_check_without_calibration(export_model):
    settings = {"inputs": "text", "compute": "int8", "padding": "skipped", "check": True, "warm_up_lengths": ""}
    manifest = json.loads((export_model("classifier", **settings) / "assets.extra/manifest.json").read_text())
    assert 0 < manifest["check"]["logits"] < 0.3 and 0 < manifest["check"]["text logits"] < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("compute", ["int8", "int8_vnni"])
def test_clipped_8_bit_products_fail_the_check(export_model, make_model, monkeypatch, compute):
    """The process that checks is made to be a CPU without VNNI."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setattr("serving.inference.options.has_vnni", lambda: True)
    model = make_model("classifier", hidden_size=64, intermediate_size=128)
    settings = {"inputs": "ids", "compute": compute, "check": True, "warm_up_lengths": ""}
    if compute == "int8":
        export_model(model, **settings)
        return
    with pytest.raises(UserError, match="failed its check"):
        export_model(model, **settings)


@pytest.mark.parametrize("save", [save_official, save_huggingface])
def test_published_checkpoints_export_as_they_are(make_model, tokenizer, tmp_path, save):
    model = make_model("classifier")
    save(model, tmp_path / "published")
    (tmp_path / "published" / "vocab.txt").write_bytes(tokenizer.vocabulary)
    if save is save_huggingface:
        config = json.loads((tmp_path / "published" / "config.json").read_text())
        config["id2label"] = {"0": "bad", "1": "so so", "2": "good"}
        (tmp_path / "published" / "config.json").write_text(json.dumps(config))
    source = load(str(tmp_path / "published"))
    assert source.tokenizer.sha256 == tokenizer.sha256
    assert source.task == ({"labels": ["bad", "so so", "good"]} if save is save_huggingface else {})
    for ours, theirs in zip(model.get_weights(), source.model.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


def test_a_published_vocabulary_is_cased_as_its_configuration_says(make_model, tokenizer, tmp_path):
    save_huggingface(make_model("encoder"), tmp_path)
    (tmp_path / "vocab.txt").write_bytes(tokenizer.vocabulary)
    assert load(str(tmp_path)).tokenizer.lower_case
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not load(str(tmp_path)).tokenizer.lower_case
    assert not load(str(tmp_path), str(tmp_path / "vocab.txt")).tokenizer.lower_case
    assert load(str(tmp_path), lower_case=True).tokenizer.lower_case

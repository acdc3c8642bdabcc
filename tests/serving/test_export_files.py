"""What an export leaves on disk: the weights once, a manifest that tells the truth, and only what passed its check."""

import dataclasses
import hashlib
import json
import os
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.checkpoints import save_huggingface, save_official
from albert_tf.loading import load
from albert_tf.training.start import load_start
from serving import check as check_module
from serving.export import ExportSettings, export, main
from serving.manifest import FILE as MANIFEST
from tfrecords.base.errors import UserError

TASK = {"labels": ["a", "b", "c"], "inputs": ["first", "second"], "max_seq_length": 24, "metrics": {"accuracy": 0.5}}
# Beyond core TensorFlow; tensorflow_model_server has linked it since 2.8.
WORDPIECE_OPS = {"WordpieceTokenizeWithOffsets"}


def read_graph(version):
    message = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    return message.meta_graphs[0].graph_def


def call_here(version, calls):
    """What `run_calls` gives, by the process that has TensorFlow already."""
    signatures = tf.saved_model.load(str(version)).signatures
    answers = [signatures[name](**tf.nest.map_structure(tf.constant, inputs)) for name, inputs in calls]
    return tf.nest.map_structure(lambda value: value.numpy(), answers)


def nodes_of(graph):
    return [*graph.node, *(node for function in graph.library.function for node in function.node_def)]


@pytest.fixture(scope="module")
def version(export_model, tmp_path_factory):
    """A pair classifier over text, calibrated, checked, not exact."""
    lines = tmp_path_factory.mktemp("calibration") / "lines.txt"
    lines.write_text("the cat sat\n\nparis is the capital of france\n")
    settings = {"inputs": "text", "compute": "int8", "padding": "skipped", "check": True}
    return export_model("classifier", TASK, calibration_text=str(lines), **settings)


@pytest.fixture(scope="module")
def manifest(version):
    return json.loads((version / "assets.extra/manifest.json").read_text())


def test_the_tables_of_characters_are_stored_once(version):
    graph = read_graph(version)
    large = [node for node in nodes_of(graph) if node.op == "Const" and node.ByteSize() > 20_000]
    # One number a Unicode character of the pages that differ, and what each becomes.
    assert 0 < len(large) <= 2 and all(node.name in {top.name for top in graph.node} for node in large)
    assert (version / "saved_model.pb").stat().st_size < 1_650_000


@pytest.mark.parametrize(
    "head", ["spans", *(pytest.param(head, marks=pytest.mark.slow) for head in ("multiple choice", "token classifier"))]
)
@pytest.mark.slow
def test_text_models_use_ops_that_old_servers_have(export_model, head):
    ops = {node.op for node in nodes_of(read_graph(export_model(head, inputs="text", warm_up_lengths="")))}
    assert {op for op in ops if not hasattr(tf.raw_ops, op) and op != "NoOp"} == WORDPIECE_OPS


def test_every_weight_is_stored_once_and_the_graph_does_not_grow_with_depth(make_model, export_model):
    shallow = make_model("pretrainer", hidden_size=256, intermediate_size=1024, num_hidden_layers=3)
    deep = make_model("pretrainer", hidden_size=256, intermediate_size=1024, num_hidden_layers=9)
    versions = [export_model(model, warm_up_lengths="") for model in (shallow, deep)]
    counts = [len(nodes_of(read_graph(one))) for one in versions]
    assert counts[0] == counts[1]
    stored = sum(file.stat().st_size for file in versions[1].rglob("*") if file.is_file())
    weights = 4 * deep.count_params()
    # Room for the graph itself, not for a second copy of the block.
    assert weights <= stored < 1.35 * weights


def test_manifest(version, manifest):
    assert manifest["model"] == "AlbertClassifier" and manifest["config"]["hidden_size"] == 16
    assert manifest["task"] == TASK and manifest["metrics"] == {"accuracy": 0.5}
    assert manifest["compute"]["compute"] == "int8" and manifest["max_seq_length"] == 24
    assert "oneDNN" in manifest["compute"]["requires"]
    assert manifest["signatures"]["serving_default"] == {"first": "string [any]", "second": "string [any]"}
    # int8 is not exact, and the check has seen it.
    assert 1e-5 < manifest["check"]["logits"] < 0.3 and 1e-5 < manifest["check"]["text logits"] < 0.3
    for name, digest in manifest["files_sha256"].items():
        assert hashlib.sha256((version / name).read_bytes()).hexdigest() == digest
    assert {"saved_model.pb", "variables/variables.index"} <= manifest["files_sha256"].keys()


def test_an_export_that_answers_otherwise_is_no_version(export_model, monkeypatch):
    def wrong(model, inputs):
        return {"logits": np.full((4, 3), 0.3, np.float32)}

    # Loaded by this process: what an export needs to be served by a fresh one, others show.
    monkeypatch.setattr(check_module, "run_calls", call_here)
    monkeypatch.setattr(check_module, "expected_answers", wrong)
    with pytest.raises(UserError, match=r"failed its check: logits differs by .* from the Keras model"):
        export_model("classifier", check=True, inputs="ids", warm_up_lengths="")


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.slow
def test_a_broken_masked_language_model_fails_the_check(make_model, serve, monkeypatch, text):
    """Also where all words are about as likely, so that no probability differs by much."""

    def flat_model(shift):
        model = make_model("pretrainer")
        head = model.masked_lm_head
        for variable in (head.layer_norm.gamma, head.layer_norm.beta):
            variable.assign(keras.ops.zeros_like(variable))
        head.output_bias.assign(shift * (np.arange(head.output_bias.shape[0]) % 2))
        return model

    _, served = serve(flat_model(0), text=text)
    monkeypatch.setattr(check_module, "run_calls", lambda _, calls: [served(name, **inputs) for name, inputs in calls])
    differences = check_module.check(Path(), flat_model(0), served.exportable)
    assert differences["fill_mask log_probabilities"] < 1e-5
    with pytest.raises(UserError, match="failed its check: fill_mask log_probabilities differs"):
        check_module.check(Path(), flat_model(0.005), served.exportable)


def test_half_precision_models_are_checked(make_model, serve, monkeypatch):
    _, served = serve("classifier")
    monkeypatch.setattr(check_module, "run_calls", lambda _, calls: [served(name, **inputs) for name, inputs in calls])
    keras.config.set_dtype_policy("mixed_float16")
    try:
        half = make_model("classifier")
    finally:
        keras.config.set_dtype_policy("float32")
    half.set_weights(make_model("classifier").get_weights())
    assert check_module.check(Path(), half, served.exportable)["logits"] < 0.1


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


@pytest.mark.slow
def test_an_export_that_does_not_load_is_no_version(version, tmp_path, make_model, serve):
    shutil.copytree(version, tmp_path / "broken")
    os.truncate(tmp_path / "broken" / "saved_model.pb", 1000)
    _, served = serve("classifier")
    with pytest.raises(UserError, match="the export failed its check: "):
        check_module.check(tmp_path / "broken", make_model("classifier"), served.exportable)


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


@pytest.mark.slow
def test_a_bare_vocabulary_keeps_accents_where_told(make_model, tmp_path, capsys):
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "schon", "schön"]))
    make_model("encoder", vocab_size=7).save(tmp_path / "model.keras")
    settings = ExportSettings(
        str(tmp_path / "model.keras"), str(tmp_path / "out"), inputs="text", keep_accents=True, warm_up_lengths=""
    )
    assert load(settings.model).tokenizer.encode("Schön") == [5]
    start = load_start(settings.model, "", keep_accents=True)
    assert start.tokenizer.keep_accents and start.tokenizer.encode("Schön") == [6]
    main(settings)
    manifest = json.loads((tmp_path / "out" / "1" / MANIFEST).read_text())
    assert manifest["tokenizer_sha256"] == start.tokenizer.sha256
    said = capsys.readouterr()
    assert f"exported {tmp_path / 'out' / '1'} (" in said.out
    assert f"next: python -m serving.model_server --port=8500 --model_name=out --model_base_path={tmp_path}" in said.err


def test_a_model_without_a_task_or_tokenizer(make_model, tokenizer, tmp_path, export_model):
    make_model("encoder").save(tmp_path / "bare.keras")
    settings = ExportSettings(str(tmp_path / "bare.keras"), str(tmp_path / "out"), warm_up_lengths="")
    loaded = tf.saved_model.load(export(settings))
    outputs = loaded.signatures["serving_default"](input_ids=tf.constant([[2, 8, 3]]), lengths=tf.constant([3]))
    assert outputs.keys() == {"embedding", "pooled_output"}
    with pytest.raises(UserError, match="--inputs=text needs the vocabulary"):
        export(dataclasses.replace(settings, inputs="text"))
    tokenizer.save(tmp_path / "tokenizer")
    assert load(settings.model, str(tmp_path / "tokenizer")).tokenizer.sha256 == tokenizer.sha256
    with pytest.raises(UserError, match="cannot warm up 'no'; the signatures are serving_default, "):
        export(dataclasses.replace(settings, warm_up_lengths="8", warm_up_signatures="no"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["1"]


def test_a_tokenizer_of_another_model_is_refused(make_model, tokenizer, tmp_path):
    make_model("classifier", vocab_size=20).save(tmp_path / "model.keras")
    tokenizer.save(tmp_path)
    with pytest.raises(UserError, match=rf"{tokenizer.vocab_size} pieces, the model only 20"):
        load(str(tmp_path))

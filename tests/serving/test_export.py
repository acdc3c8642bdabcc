"""What is exported answers as the Keras model does, stands alone on disk, and is whole or not there."""

import dataclasses
import json
import os
import shutil
import socket
import subprocess

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf.loading import load
from albert_tf.models.base import EncoderModel
from serving.check import expected_answers
from serving.export import ExportSettings, export, main
from serving.exportable import ExportOptions, make_exportable
from tfrecords.base.errors import UserError

TEXTS = ["The if statement is used for conditional execution.", "a short one", ""]
# Beyond core TensorFlow, tensorflow_model_server has linked these since 2.8.
CUSTOM_OPS = {"SentencepieceOp", "SentencepieceTokenizeOp"}


@pytest.fixture(scope="module")
def versions(tiny_run, tmp_path_factory):
    return {
        inputs: export(ExportSettings(str(tiny_run), str(tmp_path_factory.mktemp(inputs)), inputs))
        for inputs in ("ids", "text")
    }


@pytest.fixture(scope="module")
def ids(versions):
    return tf.saved_model.load(versions["ids"]).signatures


@pytest.fixture(scope="module")
def text(versions):
    servable = tf.saved_model.load(versions["text"])
    # The signatures hold no reference to the model that owns the vocabulary.
    yield servable.signatures
    del servable


@pytest.fixture(scope="module")
def framed(tiny_run):
    """The texts as padded token ids and lengths, by the Python tokenizer."""
    tokenizer = load(tiny_run).tokenizer
    rows = [[tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id] for text in TEXTS]
    lengths = np.array([len(row) for row in rows], np.int32)
    padded = np.zeros((len(rows), lengths.max()), np.int32)
    for row, tokens in zip(padded, rows, strict=True):
        row[: len(tokens)] = tokens
    return padded, lengths


@pytest.mark.slow
def test_a_version_of_another_depth_is_that_model_and_says_so(tiny_run, ids, framed, tmp_path):
    version = export(ExportSettings(str(tiny_run), str(tmp_path), depth=5, warm_up_lengths=""))
    manifest = json.loads((version / "assets.extra/manifest.json").read_text())
    assert manifest["config"]["num_hidden_layers"] == 5 and manifest["export"]["depth"] == 5
    deep = tf.saved_model.load(version).signatures["serving_default"]
    rows = {"input_ids": tf.constant(framed[0]), "lengths": tf.constant(framed[1])}
    expected = expected_answers(load(tiny_run, depth=5).model, {"input_ids": framed[0], "lengths": framed[1]})
    for name, values in expected.items():
        np.testing.assert_allclose(deep(**rows)[name], values, atol=1e-5)
        assert np.abs(ids["serving_default"](**rows)[name] - values).max() > 1e-3


def test_ids_answers_equal_the_keras_model(tiny_run, ids, framed):
    model = load(tiny_run).model
    input_ids, lengths = framed
    mask = (np.arange(input_ids.shape[1]) < lengths[:, None]).astype("int32")
    outputs = model.encoder({"input_ids": input_ids, "input_mask": mask, "segment_ids": np.zeros_like(mask)})
    served = ids["serving_default"](input_ids=tf.constant(input_ids), lengths=tf.constant(lengths))
    np.testing.assert_allclose(served["pooled_output"], outputs["pooled_output"], atol=1e-5)
    sequence = keras.ops.convert_to_numpy(outputs["sequence_output"])
    means = [sequence[row, :length].mean(axis=0) for row, length in enumerate(lengths)]
    np.testing.assert_allclose(served["embedding"], means, atol=1e-5)

    # Tokens of all rows, the empty text's [CLS] and [SEP] too: what padding would be filled with is nobody's business.
    positions = np.array([[0, 1]] * len(lengths), np.int32)
    filled = ids["fill_mask"](
        input_ids=tf.constant(input_ids), lengths=tf.constant(lengths), masked_lm_positions=tf.constant(positions)
    )
    logits = model({"input_ids": input_ids, "input_mask": mask, "masked_lm_positions": positions})["masked_lm_logits"]
    probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
    np.testing.assert_array_equal(filled["ids"], np.argsort(-probabilities, axis=-1, kind="stable")[..., :5])
    np.testing.assert_allclose(filled["probabilities"], -np.sort(-probabilities)[..., :5], atol=1e-6)


def test_text_answers_equal_ids_answers(ids, text, framed):
    input_ids, lengths = map(tf.constant, framed)
    by_ids = ids["serving_default"](input_ids=input_ids, lengths=lengths)
    by_text = text["serving_default"](text=tf.constant(TEXTS))
    for name in by_ids:
        np.testing.assert_allclose(by_text[name], by_ids[name], atol=1e-6)
    tokens = text["tokenize"](text=tf.constant(TEXTS))
    np.testing.assert_array_equal(tokens["input_ids"], input_ids)
    np.testing.assert_array_equal(tokens["lengths"], lengths)


def test_what_a_server_pads_with_changes_nothing(ids, framed):
    """TF Serving pads ids to the batch's longest by repeating a request's first element, here [CLS]."""
    input_ids, lengths = framed
    row, length = input_ids[1, : lengths[1]], lengths[1:2]
    alone = ids["serving_default"](input_ids=tf.constant(row[None]), lengths=tf.constant(length))
    padded = np.concatenate([row, np.full(9, row[0])]).astype(np.int32)
    batched = ids["serving_default"](input_ids=tf.constant(padded[None]), lengths=tf.constant(length))
    for name in alone:
        np.testing.assert_allclose(batched[name], alone[name], atol=1e-6)


def test_masks_in_text_are_filled(tiny_run, ids, text):
    tokenizer = load(tiny_run).tokenizer
    answers = text["fill_mask"](text=tf.constant(["The [MASK] is a [MASK].", "none", "[MASK]"]))
    assert answers["pieces"].shape == answers["probabilities"].shape == (3, 2, 5)
    row = [2, *tokenizer.encode("The "), 4, *tokenizer.encode(" is a "), 4, *tokenizer.encode("."), 3]
    expected = ids["fill_mask"](
        input_ids=tf.constant([row]),
        lengths=tf.constant([len(row)]),
        masked_lm_positions=tf.constant([[i for i, token in enumerate(row) if token == 4]]),
    )
    np.testing.assert_allclose(answers["probabilities"][0], expected["probabilities"][0], atol=1e-6)
    pieces = [[tokenizer.id_to_piece(int(i)).encode() for i in best] for best in expected["ids"][0]]
    assert answers["pieces"][0].numpy().tolist() == pieces
    assert set(answers["pieces"][1].numpy().ravel()) == {b""} and not answers["probabilities"][1].numpy().any()
    assert answers["probabilities"][2, 0, 0] > 0 and answers["probabilities"][2, 1, 0] == 0


def test_pairs_of_text_keep_their_segments_and_fit(tiny_run, ids, text):
    tokenizer = load(tiny_run).tokenizer
    first, second = tokenizer.encode("if it is true"), tokenizer.encode("the suite runs")
    row = [2, *first, 3, *second, 3]
    segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
    expected = ids["sentence_order"](
        input_ids=tf.constant([row]), lengths=tf.constant([len(row)]), segment_ids=tf.constant([segments])
    )
    served = text["sentence_order"](first=tf.constant(["if it is true"]), second=tf.constant(["the suite runs"]))
    np.testing.assert_allclose(served["probabilities"], expected["probabilities"], atol=1e-6)
    long = tf.constant(["word " * 500])
    for pair in ((long, long), (long, tf.constant([""])), (tf.constant([""]), long)):
        assert np.isfinite(text["sentence_order"](first=pair[0], second=pair[1])["probabilities"]).all()


def test_longer_ids_than_the_model_has_positions_are_refused(ids):
    with pytest.raises(tf.errors.InvalidArgumentError, match="longer than the 48 tokens"):
        ids["serving_default"](input_ids=tf.ones([1, 49], tf.int32), lengths=tf.constant([49]))


def test_longer_text_is_cut(text):
    tokens = text["tokenize"](text=tf.constant(["word " * 500]))
    assert tokens["lengths"].numpy().tolist() == [48] and tokens["input_ids"][0, -1] == 3


@pytest.mark.parametrize("inputs", ["ids", "text"])
def test_only_known_ops(versions, inputs):
    version = versions[inputs]
    message = saved_model_pb2.SavedModel.FromString((version / "saved_model.pb").read_bytes())
    nodes = [*message.meta_graphs[0].graph_def.node]
    for function in message.meta_graphs[0].graph_def.library.function:
        nodes += function.node_def
    core = {name for name in {node.op for node in nodes} if hasattr(tf.raw_ops, name) or name == "NoOp"}
    extra = {node.op for node in nodes} - core - set(tf.config.list_logical_devices())
    assert extra == (CUSTOM_OPS if inputs == "text" else set())


def test_the_command_says_what_another_compute_would_add_on_this_cpu(tiny_run, tmp_path, run_module):
    (tmp_path / "cpuinfo").write_text("flags : fpu avx2 avx512f avx512_bf16\n")
    variables = {"ALBERT_TF_CPUINFO": str(tmp_path / "cpuinfo")}
    flags = (f"--model={tiny_run}", f"--output_dir={tmp_path}", "--warm_up_lengths=")
    ended = run_module("serving.export", *flags, variables=variables)
    exported, advice = ended.stdout.splitlines()
    assert ended.stderr.splitlines()[-1].endswith(
        f"--model_name={tmp_path.name} --model_base_path={tmp_path.resolve()}"
    )
    assert exported.startswith(f"exported {tmp_path}/1 (")
    assert (
        advice
        == "this CPU has avx512_bf16: --compute=bfloat16 is 1.6 to 2 times as fast as float32 (docs/inference.md)"
    )
    manifest = json.loads((tmp_path / "1/assets.extra/manifest.json").read_text())
    assert manifest["advice"] == advice and manifest["compute"]["padding"] == "skipped"


@pytest.mark.slow
def test_versions_count_up_and_are_never_overwritten(tiny_run, versions, tmp_path):
    (tmp_path / "notes").mkdir()
    settings = ExportSettings(str(tiny_run), str(tmp_path), warm_up_lengths="")
    assert versions["ids"].name == "1"
    assert export(dataclasses.replace(settings, version=7)).name == "7"
    assert export(settings).name == "8"
    with pytest.raises(UserError, match="version 7 exists"):
        export(dataclasses.replace(settings, version=7))


def test_an_export_that_fails_leaves_no_version(tiny_run, tmp_path, monkeypatch):
    def fail_halfway(servable, path, signatures):
        (path := type(tmp_path)(path)).mkdir()
        (path / "saved_model.pb").write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fail_halfway)
    with pytest.raises(OSError, match="No space left"):
        export(ExportSettings(str(tiny_run), str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_export_left_is_removed_and_what_runs_is_not(tiny_run, tmp_path):
    finished = subprocess.Popen(["true"])
    finished.wait()
    names = [f".writing-1-{process}-{socket.gethostname()}" for process in (finished.pid, os.getppid())]
    elsewhere = f".writing-1-{finished.pid}-another-machine"
    for name in (*names, elsewhere):
        (tmp_path / name).mkdir()
    with pytest.raises(UserError, match="signatures are"):
        export(ExportSettings(str(tiny_run), str(tmp_path), warm_up_signatures="none"))
    assert {path.name for path in tmp_path.iterdir()} == {names[1], elsewhere}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": "audio"}, "--inputs=audio"),
        ({"max_seq_length": 49}, r"--max_seq_length=49.*from 8 to the 48 tokens"),
        ({"max_seq_length": 2}, "--max_seq_length=2"),
        ({"version": -1}, "--version=-1"),
        ({"warm_up_lengths": "16,x"}, "--warm_up_lengths=16,x"),
        ({"top_k": 501}, "--top_k=501.*500"),
        ({"doc_stride": 0}, "--doc_stride=0"),
        ({"compute": "float8"}, "float8"),
        ({"check": True, "other_cpu": True, "compute": "bfloat16"}, "--check runs what --other_cpu says"),
        (
            {"performance_hint": "throughput"},
            "--performance_hint=throughput is for --compute=bfloat16, int8 or int8_vnni",
        ),
        ({"other_cpu": True}, "--other_cpu is for --compute=bfloat16 or int8_vnni; float32 is written on any"),
        ({"model": "nowhere"}, "no model at .nowhere"),
    ],
)
def test_impossible_exports_are_named(tiny_run, tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        export(dataclasses.replace(ExportSettings(str(tiny_run), str(tmp_path / "out")), **change))
    assert not (tmp_path / "out").exists()


def test_for_another_cpu_is_written_what_this_one_cannot_run(tiny_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("serving.inference.options.has_avx512", lambda: False)
    monkeypatch.setattr("serving.cpu.can_run", lambda compute, *_: compute != "bfloat16")
    settings = ExportSettings(str(tiny_run), str(tmp_path), compute="bfloat16")
    with pytest.raises(UserError, match="no AVX-512; choose float32 or int8, or export with --other_cpu for one that"):
        main(settings)
    assert not list(tmp_path.iterdir())
    main(dataclasses.replace(settings, other_cpu=True))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("not tried, since this CPU cannot run it: needs TensorFlow for x86")
    manifest = json.loads((tmp_path / "1" / "assets.extra" / "manifest.json").read_text())
    assert manifest["compute"]["compute"] == "bfloat16" and "avx512f" in manifest["compute"]["requires"]
    kernels = [dtype for name, _, dtype in variables(tmp_path / "1") if name.endswith("kernel")]
    assert kernels.count(tf.bfloat16) >= 4


def test_8_bit_products_of_other_cpus_need_none_here(tiny_run, tmp_path, monkeypatch):
    def probed():
        raise UserError("no kernels")

    monkeypatch.setattr("serving.inference.encoder.check_kernels", probed)
    monkeypatch.setattr("serving.inference.options.has_vnni", lambda: False)
    settings = ExportSettings(str(tiny_run), str(tmp_path), compute="int8_vnni", warm_up_lengths="")
    with pytest.raises(UserError, match="neither avx512_vnni nor avx_vnni"):
        export(settings)
    kernels = variables(export(dataclasses.replace(settings, other_cpu=True)))
    assert [dtype for *_, dtype in kernels].count(tf.int8) + [dtype for *_, dtype in kernels].count(tf.qint8) >= 4


def variables(version):
    reader = tf.train.load_checkpoint(str(version / "variables" / "variables"))
    types = reader.get_variable_to_dtype_map()
    return [
        (name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"), shape, types[name])
        for name, shape in reader.get_variable_to_shape_map().items()
    ]


def test_text_needs_the_tokenizer(tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "run")
    (tmp_path / "run" / "albert_tokenizer.json").unlink()
    (tmp_path / "run" / "spiece.model").unlink()
    with pytest.raises(UserError, match=r"tokenizer\.json"):
        export(ExportSettings(str(tmp_path / "run"), str(tmp_path / "out"), "text"))


class Headless(EncoderModel):
    """A model that nobody has written a servable for."""


def test_an_unknown_head_is_refused(tiny_run):
    model = load(tiny_run).model
    with pytest.raises(UserError, match=r"a Headless cannot be exported; these can: AlbertPretrainer, .*AlbertEncoder"):
        make_exportable(Headless(model.encoder), ExportOptions(48))

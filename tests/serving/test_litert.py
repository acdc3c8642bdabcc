"""A LiteRT version answers as its Keras model: every head, family and arithmetic; and it is written whole or not."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from flatbuffers import flexbuffers
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef

import albert_tf
from albert_tf.loaded import Loaded
from albert_tf.models.heads import POOLINGS
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from serving.check import TOLERANCES, Tolerance, compare
from serving.exportable import ExportOptions
from serving.lite import LiteModel, description
from serving.litert import converter
from serving.litert.converter import check_model, convert, lite_exportable
from serving.manifest import versions_of
from tests.refusals import lines, refused
from tests.serving.conftest import FAMILIES, write_export
from tests.serving.inference.encoders import GATED, MODERN
from tfrecords.base import files

# TensorFlow leaves kernels of less than 1,024 numbers in float32.
WIDE = {"hidden_size": 64, "intermediate_size": 128}
# The families of the guide's table, and architectures.
KINDS = {
    "ALBERT": {},
    "BERT": {"sharing": "none", "embedding_size": 64, "hidden_act": "gelu_erf"},
    "RoBERTa": FAMILIES["roberta"] | {"embedding_size": 64},
    "MPNet": {"relative_attention_num_buckets": 32, "sharing": "none", "position_offset": 2, "type_vocab_size": 1},
    "windows": {"attention_window": 3, "global_attention_every": 2, "num_hidden_layers": 4},
    "rotary": MODERN | GATED,
    "signals": {"step_signal": "learned", "depth_lora_rank": 2, "depth_plan": "1+1x2", "num_hidden_layers": 3},
}
HEADS = (
    "classifier", "regressor", "token classifier", "spans", "joint spans", "multiple choice", "embedder",
    "cls embedder", "sparse embedder", "encoder", "pretrainer", "words alone"
)  # fmt: skip
QUICK = {
    ("regressor", "BERT", "int8"), ("joint spans", "ALBERT", "float32"), ("pretrainer", "RoBERTa", "float32"),
    ("token classifier", "rotary", "float32"), ("classifier", "windows", "float32"), ("embedder", "MPNet", "float32")
}  # fmt: skip
NEAR = {"float32": Tolerance(1e-6, 2e-5), "int8": TOLERANCES["int8"]}
LENGTHS = np.array([12, 5, 1], np.int32)


def asked(exportable):
    """Inputs of three padded rows; what stands behind a row is anything."""
    random, shape = np.random.default_rng(1), (3, 12)
    real = np.arange(12) < LENGTHS[:, None]
    values = {
        "input_ids": random.integers(5, 40, shape, np.int32),
        "segment_ids": random.integers(0, 2, shape, np.int32) * (exportable.encoder.config.type_vocab_size > 1),
        "lengths": LENGTHS,
        "positions": np.array([[1, 11], [4, 0], [0, 0]], np.int32),
        "allowed": random.integers(0, 2, shape).astype(bool) & real,
        "may_start": random.integers(0, 2, shape).astype(bool) & real,
    }
    values["allowed"][:, 0] = True
    return {name: values[name] for name in converter.input_specs(exportable)}, real


@pytest.mark.parametrize(
    "head, kind, compute",
    [
        pytest.param(*cell, marks=() if cell in QUICK else pytest.mark.slow("litert"))
        for cell in [(head, kind, compute) for head in HEADS for kind in KINDS for compute in ("float32", "int8")]
    ],
)
def test_rows_of_different_lengths_are_answered_as_by_the_keras_model(make_model, monkeypatch, head, kind, compute):
    # Heads take turns.
    monkeypatch.setattr(converter, "MOST_SCORES", 9)
    model = make_model(head, **WIDE | KINDS[kind])
    exportable = lite_exportable(model, ExportOptions(48))
    content, outputs = convert(exportable, compute)
    inputs, real = asked(exportable)
    runner = Interpreter(model_content=content).get_signature_runner()
    answers = runner(**inputs)
    assert answers.keys() == outputs.keys()
    expected = exportable.lite_expected(model, inputs, answers)
    assert answers.keys() - expected.keys() <= {"start_index"}
    # Vectors of padding are anything.
    for found in (answers, expected):
        if exportable.lite_description().kind in ("tags", "spans") and "logits" in answers:
            found["logits"] = found["logits"] * real[:, :, None]
        if "start_index" in answers:
            begins_inside = answers["start_index"] < LENGTHS[:, None]
            found["end_log_probs"] = found["end_log_probs"] * begins_inside[:, :, None]
    differences = compare(expected, answers, NEAR[compute])
    assert compute == "float32" or max(differences.values()) > 1e-5
    # Alone, and without padding.
    for row, length in enumerate(LENGTHS):
        alone = {name: values[row : row + 1] for name, values in inputs.items()}
        alone = {name: values[:, :length] if values.shape[1:] == (12,) else values for name, values in alone.items()}
        alone |= {"positions": np.zeros((1, 1), np.int32)} if "positions" in inputs else {}
        found = runner(**alone)
        expected = exportable.lite_expected(model, alone, found)
        compare(expected, found, NEAR[compute])


@pytest.mark.parametrize("pooling", POOLINGS)
def test_poolings(make_model, pooling):
    model = AlbertSentenceEmbedder(make_model("encoder"), pooling=pooling)
    exportable = lite_exportable(model, ExportOptions(48, dimensions=5))
    inputs, _ = asked(exportable)
    answers = Interpreter(model_content=convert(exportable)[0]).get_signature_runner()(**inputs)
    assert answers["embedding"].shape == (3, 5)
    compare(exportable.lite_expected(model, inputs, answers), answers, NEAR["float32"])


def test_the_search_of_joint_spans_begins_where_answers_may_start(make_model):
    model = make_model("joint spans")
    model.start_top = 2
    exportable = lite_exportable(model, ExportOptions(48))
    inputs, _ = asked(exportable)
    inputs["may_start"][:] = inputs["allowed"][:] = False
    inputs["may_start"][:, [0, 3]] = inputs["allowed"][:, [0, 3, 4, 6]] = True
    answers = Interpreter(model_content=convert(exportable)[0]).get_signature_runner()(**inputs)
    assert {tuple(sorted(row)) for row in answers["start_index"].tolist()} == {(0, 3)}


def stored_signatures(content):
    """The serialized SignatureDefs of a file's metadata by name, each up to its first byte 0."""
    model = schema.Model.GetRootAs(content, 0)
    entries = [model.Metadata(index) for index in range(model.MetadataLength())]
    (entry,) = (one for one in entries if one.Name() == b"signature_defs_metadata")
    stored = flexbuffers.GetRoot(model.Buffers(entry.Buffer()).DataAsNumpy().tobytes()).AsMap
    values = [bytes(value.AsStringBytes).split(b"\0")[0] for value in stored.Values]
    return {key.AsKey: value for key, value in zip(stored.Keys, values, strict=True)}


def test_a_file_names_its_signatures_for_tensorflow_serving(make_model):
    exportable = lite_exportable(make_model("pretrainer"), ExportOptions(48))
    content, _ = convert(exportable)
    stored = {name: SignatureDef.FromString(message) for name, message in stored_signatures(content).items()}
    assert {name: sorted(one.outputs) for name, one in stored.items()} == {
        "serving_default": ["embedding", "pooled_output"],
        "fill_mask": ["logits"],
        "sentence_order": ["order_logits"],
    }
    interpreter = Interpreter(model_content=content)
    inputs = {detail["name"]: detail for detail in interpreter.get_input_details()}
    for one in stored.values():
        assert one.inputs.keys() == converter.input_specs(exportable).keys()
        for info in one.inputs.values():
            assert [size.size for size in info.tensor_shape.dim] == inputs[info.name]["shape_signature"].tolist()
            assert tf.as_dtype(info.dtype) == inputs[info.name]["dtype"]
        outputs = {detail["name"] for detail in interpreter.get_output_details()}
        assert {info.name for info in one.outputs.values()} <= outputs


def test_the_file_does_not_grow_with_depth(make_model):
    models = [make_model("classifier", num_hidden_layers=layers, hidden_size=128) for layers in (3, 5)]
    shallow, deep = (len(convert(lite_exportable(model, ExportOptions(48)), "int8")[0]) for model in models)
    assert abs(deep - shallow) < 100
    assert deep < models[1].count_params() + 90_000


@pytest.mark.parametrize(
    "changes, what",
    [
        ({"halting": "act"}, "halting 'act'"),
        ({"position_type": "relative"}, "position_type 'relative'"),
        ({"equilibrium_solver": "anderson"}, "equilibrium_solver 'anderson'"),
    ],
)
def test_what_it_has_no_operations_for_is_refused_by_name(make_model, changes, what):
    with refused(f"^{what} is not written for LiteRT; leave out --engine=litert$"):
        check_model(make_model("encoder", **changes))


@pytest.fixture(scope="module")
def version(make_model, tokenizer, tmp_path_factory):
    """A version of a classifier in 8 bits, by texts."""
    model = make_model("classifier", **WIDE)
    task = {"inputs": ["first", "second"], "labels": ["a", "b", "c"], "max_seq_length": 24}
    folder = tmp_path_factory.mktemp("lite")
    return write_export(folder, model, tokenizer, task, inputs="text", engine="litert", compute="int8")


def test_a_version_describes_itself(version):
    found, contents = description.read(version)
    assert sorted(contents) == ["model.tflite", "tokenizer.json"] and versions_of(version.parent) == [version]
    assert (found.answer.kind, found.answer.labels, found.answer.takes_pairs) == ("classes", ("a", "b", "c"), True)
    assert (found.compute, found.limits.max_seq_length, found.model) == ("int8", 24, "AlbertClassifier")
    assert 1e-5 < found.check["logits"] < 0.5


def test_an_export_for_ids_has_no_tokenizer(make_model, tmp_path):
    loaded = Loaded(make_model("regressor"), None, {})
    found, contents = description.read(loaded.export(tmp_path, engine="litert"))
    assert found.tokenizer is None and list(contents) == ["model.tflite"] and found.trials[0].texts == ()


def test_a_model_that_no_file_holds_is_refused(make_model, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(description, "MOST_BYTES", 1000)
    with refused("GB in float32, more than a LiteRT file holds; use --compute=int8"):
        write_export(tmp_path, make_model("regressor"), tokenizer, None, engine="litert")
    assert not list((tmp_path / "exported").iterdir())


@pytest.fixture
def damaged(version, tmp_path):
    """damaged(change): a copy of the version; `change` gets its folder, and the description's values to write."""

    def make(change, with_hash=True):
        folder = shutil.copytree(version, tmp_path / "1")
        values = json.loads((folder / description.FILE).read_text())
        change(folder, values)
        if with_hash:
            del values["sha256"]
            values["sha256"] = description.digest(values)
        files.write_json(folder / description.FILE, values)
        return folder

    return make


def _set(*place, value):
    def change(folder, values):
        for key in place[:-1]:
            values = values[key]
        values[place[-1]] = value

    return change


# A place in the description, the value to write there, and what is said.
LIES = f"""
format_version | 2 | format_version 2
more | 1 | other keys in it than model,
answer/kind | "guesses" | kind 'guesses'
answer/labels | [] | labels of classes
answer/labels | ["a", 1, "c"] | no str in /answer/labels
answer/labels | {"[" * 400 + "]" * 400} | no str in /answer/labels
answer/labels | ["a"] | 3 numbers for 1 classes
answer/threshold | [NaN] | nan in /answer/threshold
answer/threshold | 0.5 | no list in /answer/threshold
answer/threshold | [0.5, 0.5] | 2 thresholds
limits/max_seq_length | 0 | max_seq_length 0
limits/max_seq_length | true | no int in /limits/max_seq_length
inputs/lengths/dtype | "object" | dtype 'object'
files | {{"model.tflite": "{"0" * 64}"}} | no SHA-256 of 'tokenizer.json'
files/..%..%secret | "{"0" * 64}" | a file '../../secret'
trials/0/inputs/lengths | [1000000000000000000000000000000] | a trial of another length
trials/0/inputs/segment_ids | [1] | a trial of 1 segment_ids
trials/0/inputs/input_ids/0 | 1000000000000000000000000000000 | a trial of unlikely input_ids
tokenizer | null | a trial's texts
inputs/more | {{"dtype": "bool", "shape": [-1]}} | the inputs .*, more
answer/kind | "words" | labels of words
tokenizer/cls_id | -1 | special id -1
trials/1/outputs/logits/0 | 99.5 | this CPU or this version of ai-edge-litert answers otherwise
trials/1/inputs/input_ids/1 | 7 | splits '.*' otherwise
"""


@pytest.mark.parametrize("line", lines(LIES))
def test_a_lying_description_is_refused(damaged, line):
    place, value, message = line.split(" | ")
    steps = [int(step) if step.isdigit() else step.replace("%", "/") for step in place.split("/")]
    with refused(message):
        LiteModel(damaged(_set(*steps, value=json.loads(value))))


def _truncate(folder, values):
    (folder / "model.tflite").write_bytes(b"TFL3")


def _folder(folder, values):
    (folder / "model.tflite").unlink()
    (folder / "model.tflite").mkdir()


def _pipe(folder, values):
    (folder / "tokenizer.json").unlink()
    os.mkfifo(folder / "tokenizer.json")


@pytest.mark.parametrize(
    "change, message",
    [
        (_set("compute", value="float32"), "a SHA-256 '.*' that is not its own"),
        (_truncate, "'.*model.tflite' is damaged: its SHA-256 is not the one in litert.json"),
        (_folder, "cannot read '.*model.tflite'"),
        (_pipe, "'.*tokenizer.json' is no regular file"),
    ],
)
def test_a_damaged_version_is_refused(damaged, change, message):
    with refused(message):
        description.read(damaged(change, with_hash=False))


def test_a_description_is_read_as_it_was_written(version, tmp_path):
    found, _ = description.read(version)
    shutil.copytree(version, tmp_path / "1")
    other = dataclasses.replace(found, answer=dataclasses.replace(found.answer, threshold=(0.1 + 0.2,)))
    description.write(tmp_path / "1", other)
    assert description.read(tmp_path / "1")[0] == other


def test_ids_that_the_tokenizer_lacks_are_no_words(make_model, tokenizer, tmp_path):
    model = make_model("words alone", vocab_size=tokenizer.vocab_size + 7)
    bias = model.masked_lm_head.output_bias
    bias.assign(np.where(np.arange(bias.shape[0]) < tokenizer.vocab_size, bias, 9.0))
    version = write_export(tmp_path, model, tokenizer, None, inputs="text", engine="litert")
    assert description.read(version)[0].outputs["logits"].shape == (-1, -1, tokenizer.vocab_size + 7)
    ((words,),) = [answer for answer in albert_tf.load(tmp_path).predict(["the [MASK] of"])]
    assert len(words) == 5 and all(word in tokenizer.pieces and share > 0 for word, share in words)
    assert sum(share for _, share in words) < 0.1

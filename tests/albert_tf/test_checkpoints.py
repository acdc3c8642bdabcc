"""Published checkpoints: their inventories, older forms, damaged and unfitting files; see also test_round_trips.py."""

import json
import logging
import os
import re
import shutil
from pathlib import Path

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder, AlbertPretrainer
from albert_tf.checkpoints import (
    load_huggingface,
    load_keras_hub,
    load_official,
    save_huggingface,
    save_official,
)
from albert_tf.checkpoints.formats import load_keras
from albert_tf.checkpoints.official import checkpoint_prefix, read_tensors, sources_for, write_tensors
from albert_tf.checkpoints.variables import named_variables
from tests.albert_tf.tiny import assert_same_weights, batch, randomise, small, values_of
from tfrecords.base.errors import UserError

GOLD = Path(__file__).parent / "gold"
FEATURES = batch()


def pretrainer(**changes):
    return randomise(AlbertPretrainer(small(**changes)))


def classifier():
    return randomise(AlbertClassifier(small(), 3))


@pytest.mark.parametrize("change", [{}, {"num_groups": 2, "num_inner_repetitions": 2}, {"embedding_dim": 8}])
@pytest.mark.few(2)
def test_keras_hub_computes_the_same(change):
    sizes = dict(vocabulary_size=40, num_layers=4, num_heads=2, embedding_dim=4, hidden_dim=8, intermediate_dim=12)
    backbone = randomise(keras_hub.models.AlbertBackbone(**sizes | change, max_sequence_length=9))
    names = {"token_ids": "input_ids", "segment_ids": "segment_ids", "padding_mask": "input_mask"}
    theirs = backbone({name: FEATURES[ours] for name, ours in names.items()})
    ours = load_keras_hub(backbone)(FEATURES)
    tokens = FEATURES["input_mask"].astype(bool)
    for name in ("sequence_output", "pooled_output"):
        select = tokens if name == "sequence_output" else slice(None)
        np.testing.assert_allclose(np.asarray(ours[name])[select], np.asarray(theirs[name])[select], atol=1e-5)


def test_half_a_head_is_an_error(tmp_path):
    file = save_huggingface(classifier(), tmp_path) / "model.safetensors"
    tensors, bias = load_file(file), "classifier.bias"
    del tensors[bias]
    for change, message in (
        ({}, r"missing: classifier\.bias"),
        ({bias: np.array(1, "float32")}, r"of another shape: classifier\.bias \(\), expected \(3,\)"),
        (
            {bias: np.zeros(3, "float32"), "classifier.weight": np.zeros((0, 16), "float32")},
            r"of another shape: classifier\.weight \(0, 16\), expected",
        ),
    ):
        save_file(tensors | change, file)
        for given in (None, classifier()):
            with pytest.raises(UserError, match=message):
                load_huggingface(tmp_path, given)


INVENTORIES = {
    "google_albert_base_en": "albert_base_v2",
    "google_albert_large_en": "albert_large_v2",
    "google_albert_base_zh": "albert_base_zh",
    "brightmart_albert_tiny_zh": "albert_tiny_zh",
    "google_code_albert_small_zh_with_slots": "albert_small_zh_google",
}


@pytest.mark.parametrize("file, name", INVENTORIES.items(), ids=INVENTORIES.values())
def test_published_checkpoints_have_exactly_our_variables(file, name):
    published = {}
    for line in (GOLD / "inventories" / f"{file}.txt").read_text().splitlines()[1:]:
        variable, shape = re.match(r"(\S+) \[(.*?)\]", line).groups()
        if not variable.endswith(("adam_m", "adam_v", "global_step")):
            published[variable] = tuple(int(size) for size in shape.split(", "))
    model = AlbertPretrainer(AlbertEncoder(AlbertConfig.named(name)))
    sources = sources_for(model.encoder.config)
    ours = {
        sources[ours].name: tuple(variable.shape)[:: -1 if sources[ours].transposed else 1]
        for ours, variable in named_variables(model).items()
    }
    assert ours == published


def test_slots_and_counters_are_left_out(tmp_path):
    model = pretrainer()
    prefix = save_official(model, tmp_path)
    tensors = read_tensors(prefix)
    slots = {f"{name}/{slot}": value for name, value in tensors.items() for slot in ("adam_m", "adam_v", "Adam_1")}
    write_tensors(prefix, tensors | slots | {"global_step": np.int64(3)})
    assert_same_weights(load_official(tmp_path), model)


def test_a_damaged_state_file_is_passed_over(tmp_path):
    prefix = save_official(AlbertEncoder(small()), tmp_path)
    for state in (b"\xff\xfe", b"model_checkpoint_path: ", b"\x00" * 9, b""):
        (tmp_path / "checkpoint").write_bytes(state)
        assert checkpoint_prefix(tmp_path) == prefix


def test_an_index_is_written_last(tmp_path, monkeypatch):
    """A checkpoint without one is not there."""
    moved, replace = [], os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: moved.append(str(paths[1])) or replace(*paths))
    prefix = save_official(AlbertEncoder(small()), tmp_path)
    assert moved[:2] == [f"{prefix}.data-00000-of-00001", f"{prefix}.index"]


def test_a_model_with_more_groups_starts_from_the_first_one(tmp_path, caplog):
    save_official(pretrainer(num_hidden_layers=5), tmp_path)
    many = AlbertPretrainer(small(num_hidden_layers=5, num_hidden_groups=3, inner_group_num=2))
    with caplog.at_level(logging.WARNING):
        load_official(tmp_path, many)
    assert "group_2/inner_group_1/attention_1/self/query/kernel" in caplog.text
    twice = AlbertEncoder(small(num_hidden_layers=10))
    load_official(tmp_path, twice)
    np.testing.assert_allclose(many.encoder(FEATURES)["sequence_output"], twice(FEATURES)["sequence_output"], atol=1e-5)


def test_a_classifier_takes_the_encoder_and_says_what_it_leaves(tmp_path, caplog):
    pretrained = pretrainer()
    save_official(pretrained, tmp_path)
    model = AlbertClassifier(small(), num_classes=3)
    with caplog.at_level(logging.WARNING):
        load_official(tmp_path, model)
    assert "cls/predictions/output_bias" in caplog.text and "classifier/kernel" in caplog.text
    assert_same_weights(model.encoder, pretrained.encoder)


def test_unfitting_tensors_are_all_named_and_nothing_is_changed(tmp_path):
    prefix = save_official(pretrainer(), tmp_path)
    tensors = read_tensors(prefix)
    del tensors["bert/pooler/dense/bias"]
    tensors["cls/predictions/output_bias"] = np.zeros(41, "float32")
    tensors["bert/encoder/strange"] = np.zeros(1, "float32")
    write_tensors(prefix, tensors)
    model = AlbertPretrainer(small())
    before = values_of(model)
    with pytest.raises(UserError) as caught:
        load_official(prefix, model)
    for text in ("missing: bert/pooler/dense/bias", "output_bias (41,), expected (40,)", "bert/encoder/strange"):
        assert text in str(caught.value)
    for name, value in values_of(model).items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


def test_heads_that_a_pretrainer_needs_are_missed(tmp_path):
    save_official(randomise(AlbertEncoder(small())), tmp_path)
    with pytest.raises(UserError, match=r"missing: .*cls/seq_relationship/output_weights"):
        load_official(tmp_path, AlbertPretrainer(small()))


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_damaged_official_files(size, tmp_path):
    folder = shutil.copytree(GOLD / "official" / "tiny_groups2", tmp_path / "case")
    for suffix in (".index", ".data-00000-of-00001"):
        file = folder / f"model.ckpt-best{suffix}"
        whole = file.read_bytes()
        file.write_bytes(whole[: min(size, len(whole) - 1)])
        with pytest.raises(UserError, match="cannot read the TensorFlow checkpoint"):
            load_official(folder)
        file.write_bytes(whole)
    data = bytearray(file.read_bytes())
    data[size] ^= 0xFF
    file.write_bytes(data)
    with pytest.raises(UserError, match="cannot read the TensorFlow checkpoint"):
        load_official(folder)


def test_absent_and_ambiguous_files(tmp_path):
    with pytest.raises(UserError, match=r"no TensorFlow checkpoint at .*nowhere"):
        load_official(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds 0 TensorFlow checkpoints"):
        load_official(tmp_path)
    model = randomise(AlbertEncoder(small()))
    save_official(model, tmp_path, name="one")
    (tmp_path / "albert_config.json").unlink()
    with pytest.raises(UserError, match=r"holds no albert_config.json"):
        load_official(tmp_path)
    save_official(model, tmp_path, name="two")
    with pytest.raises(UserError, match="holds 2 TensorFlow checkpoints"):
        load_official(tmp_path)
    for path in (tmp_path / "two", tmp_path / "two.index"):
        assert_same_weights(load_official(path), model)
    with pytest.raises(UserError, match=r"no .*model\.safetensors"):
        load_huggingface(tmp_path)
    with pytest.raises(UserError, match="keras-hub cannot load the preset"):
        load_keras_hub(tmp_path)


def test_damaged_safetensors(tmp_path):
    file = shutil.copytree(GOLD / "huggingface" / "bert", tmp_path / "case") / "model.safetensors"
    whole = file.read_bytes()
    for size in (0, 4, 300, 60000):
        file.write_bytes(whole[:size])
        with pytest.raises(UserError, match="as safetensors"):
            load_huggingface(file)


def test_errors_without_text_are_named_by_their_kind(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError

    prefix = save_official(AlbertEncoder(small()), tmp_path)
    (tmp_path / "model.keras").touch()
    monkeypatch.setattr(tf.train, "load_checkpoint", fail)
    monkeypatch.setattr(keras.saving, "load_model", fail)
    monkeypatch.setattr(keras_hub.models.Backbone, "from_preset", fail)
    for load, path in ((load_official, prefix), (load_keras, tmp_path), (load_keras_hub, tmp_path)):
        with pytest.raises(UserError, match=r"RuntimeError$"):
            load(path)


def test_headless_encoders_without_prefix_and_tied_copies(tmp_path):
    folder = shutil.copytree(GOLD / "huggingface" / "bert", tmp_path / "case")
    tensors = load_file(folder / "model.safetensors")
    whole = load_huggingface(folder)
    tied = tensors | {"cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"]}
    save_file(tied, folder / "model.safetensors")
    assert_same_weights(load_huggingface(folder), whole)
    tied["cls.predictions.decoder.weight"] = tied["cls.predictions.decoder.weight"] + 1
    save_file(tied, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"not part of this model: cls\.predictions\.decoder\.weight"):
        load_huggingface(folder)
    bare = {name.removeprefix("bert."): value for name, value in tensors.items() if name.startswith("bert.")}
    del bare["pooler.dense.weight"], bare["pooler.dense.bias"]
    save_file(bare | {"embeddings.position_ids": np.arange(64)[None]}, folder / "model.safetensors")
    encoder = load_huggingface(folder)
    assert encoder.pooler is None
    np.testing.assert_array_equal(encoder(FEATURES)["sequence_output"], whole.encoder(FEATURES)["sequence_output"])


@pytest.mark.parametrize(
    "change", [{"embedding_size": 16, "always_project": True}, {"embedding_size": 16, "sharing": "none"}]
)
def test_a_huggingface_file_needs_no_word_of_its_origin(change, tmp_path):
    config = small(hidden_act="gelu_erf", **change)
    save_huggingface(AlbertEncoder(config), tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    del values["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    assert load_huggingface(tmp_path).config == config


@pytest.mark.parametrize("case", ["bert", "albert_groups2"])
def test_layer_norms_by_their_old_names(case, tmp_path):
    folder = shutil.copytree(GOLD / "huggingface" / case, tmp_path / "case")
    whole, tensors = load_huggingface(folder), load_file(folder / "model.safetensors")
    old_names = {"weight": "gamma", "bias": "beta"}
    old = {
        re.sub(r"(?i)(layer_?norm\.)(weight|bias)$", lambda found: found[1] + old_names[found[2]], name): value
        for name, value in tensors.items()
    }
    assert any(name.endswith("LayerNorm.gamma") for name in old)
    save_file(old, folder / "model.safetensors")
    assert_same_weights(load_huggingface(folder), whole)

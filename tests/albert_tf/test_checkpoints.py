"""Every format there and back for every kind of model; published inventories; damaged and unfitting files."""

import json
import logging
import re
import shutil
from pathlib import Path

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

import albert_tf
from albert_tf import AlbertConfig, AlbertEncoder, AlbertPretrainer
from albert_tf.checkpoints import (
    load_huggingface,
    load_keras_hub,
    load_official,
    save_huggingface,
    save_keras_hub,
    save_official,
)
from albert_tf.checkpoints.formats import load_keras
from albert_tf.checkpoints.official import read_tensors, sources_for, write_tensors
from albert_tf.checkpoints.variables import named_variables
from tfrecords.base.errors import UserError

GOLD = Path(__file__).parent / "gold"
FEATURES = {
    "input_ids": np.array([[2, 7, 8, 9, 3, 0], [2, 5, 6, 3, 7, 3]], "int32"),
    "input_mask": np.array([[1, 1, 1, 1, 1, 0], [1] * 6], "int32"),
    "segment_ids": np.array([[0] * 6, [0, 0, 0, 0, 1, 1]], "int32"),
}


def small(**changes):
    sizes = dict(vocab_size=23, embedding_size=4, hidden_size=8, num_hidden_layers=5, num_attention_heads=2)
    return AlbertConfig(**sizes | dict(intermediate_size=12, max_position_embeddings=9) | changes)


def randomise(model):
    rng = np.random.default_rng(5)
    for variable in model.weights:
        # Scales near 1: random ones drown what tells tokens apart.
        variable.assign(("gamma" in variable.path) + rng.normal(scale=0.3, size=variable.shape))
    return model


def same(one, other, features=FEATURES):
    for ours, theirs in zip(keras.tree.flatten(one(features)), keras.tree.flatten(other(features))):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


CONFIGS = {
    "shared": small(),
    "groups": small(num_hidden_groups=2),
    "inner groups": small(num_hidden_groups=3, inner_group_num=2),
    "square": small(embedding_size=8),
    "relu": small(hidden_act="relu"),
    "unshared": small(sharing="none"),
    "bert": small(sharing="none", embedding_size=8),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@pytest.mark.parametrize(
    "save, load",
    [(save_official, load_official), (save_huggingface, load_huggingface)],
    ids=["official", "huggingface"],
)
@pytest.mark.few(3)
def test_there_and_back(config, save, load, tmp_path):
    model = randomise(AlbertPretrainer(AlbertEncoder(config)))
    save(model, tmp_path)
    same(load(tmp_path), model)
    save(model.encoder, tmp_path / "encoder")
    loaded = load(tmp_path / "encoder")
    assert isinstance(loaded, AlbertEncoder)
    same(loaded, model.encoder)


def test_the_official_code_would_build_a_group_for_each_unshared_layer(tmp_path):
    save_official(AlbertEncoder(small(sharing="none")), tmp_path)
    assert json.loads((tmp_path / "albert_config.json").read_text())["num_hidden_groups"] == 5
    assert load_official(tmp_path).config.sharing == "none"


@pytest.mark.parametrize("config", [small(sharing=s) for s in ("attention", "ffn")] + [small(factorization="word")])
def test_official_there_and_back_for_forms_that_only_it_has(config, tmp_path):
    model = randomise(AlbertPretrainer(AlbertEncoder(config)))
    save_official(model, tmp_path)
    same(load_official(tmp_path), model)
    with pytest.raises(UserError, match="transformers has no model with"):
        save_huggingface(model, tmp_path)
    with pytest.raises(UserError, match="keras-hub has only"):
        save_keras_hub(model, tmp_path)


@pytest.mark.parametrize("change", [{}, {"num_hidden_groups": 5}, {"inner_group_num": 2}, {"embedding_size": 8}])
@pytest.mark.parametrize("sharing", ["all", "none"])
@pytest.mark.few(3)
def test_keras_hub_there_and_back(change, sharing, tmp_path):
    if sharing == "none" and "num_hidden_groups" in change:
        change = {"embedding_size": 8}
    encoder = randomise(AlbertEncoder(small(sharing=sharing, **change)))
    save_keras_hub(encoder, tmp_path)
    same(load_keras_hub(tmp_path), encoder)


@pytest.mark.parametrize("change", [{}, {"num_groups": 2, "num_inner_repetitions": 2}, {"embedding_dim": 8}])
@pytest.mark.few(2)
def test_keras_hub_computes_the_same(change):
    sizes = dict(vocabulary_size=23, num_layers=4, num_heads=2, embedding_dim=4, hidden_dim=8, intermediate_dim=12)
    backbone = randomise(keras_hub.models.AlbertBackbone(**sizes | change, max_sequence_length=9))
    theirs = backbone.predict(
        {
            "token_ids": FEATURES["input_ids"],
            "segment_ids": FEATURES["segment_ids"],
            "padding_mask": FEATURES["input_mask"],
        },
        verbose=0,
    )
    ours = load_keras_hub(backbone)(FEATURES)
    tokens = FEATURES["input_mask"].astype(bool)
    for name in ("sequence_output", "pooled_output"):
        select = tokens if name == "sequence_output" else slice(None)
        np.testing.assert_allclose(np.asarray(ours[name])[select], theirs[name][select], atol=1e-5)


@pytest.mark.parametrize("name", ["classifier", "regressor", "token", "choice", "span"])
def test_fine_tuned_models_pass_through_huggingface(name, tmp_path):
    encoder = AlbertEncoder(small(), pooler=name not in ("token", "span"))
    model = {
        "classifier": lambda: albert_tf.AlbertClassifier(encoder, 3),
        "regressor": lambda: albert_tf.AlbertRegressor(encoder),
        "token": lambda: albert_tf.AlbertTokenClassifier(encoder, 4),
        "choice": lambda: albert_tf.AlbertMultipleChoice(encoder),
        "span": lambda: albert_tf.AlbertSpanPredictor(encoder, start_top=2, end_top=2),
    }[name]()
    save_huggingface(randomise(model), tmp_path)
    loaded = load_huggingface(tmp_path)
    assert type(loaded) is type(model)
    for ours, theirs in zip(loaded.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


def test_a_head_on_an_encoder_without_pooler_is_for_tokens(tmp_path):
    model = randomise(albert_tf.AlbertTokenClassifier(AlbertEncoder(small(), pooler=False), 4))
    save_official(model, tmp_path)
    same(load_official(tmp_path), model)


@pytest.mark.parametrize(
    "change, message",
    [
        ({}, r"missing: classifier\.bias"),
        ({"classifier.bias": np.array(1, "float32")}, r"of another shape: classifier\.bias \(\), expected \(3,\)"),
        (
            {"classifier.bias": np.zeros(3, "float32"), "classifier.weight": np.zeros((0, 8), "float32")},
            r"of another shape: classifier\.weight \(0, 8\), expected",
        ),
    ],
)
@pytest.mark.parametrize("given", [False, True])
def test_half_a_head_is_an_error(change, message, given, tmp_path):
    save_huggingface(randomise(albert_tf.AlbertClassifier(AlbertEncoder(small()), 3)), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["classifier.bias"]
    save_file(tensors | change, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=message):
        load_huggingface(tmp_path, albert_tf.AlbertClassifier(AlbertEncoder(small()), 3) if given else None)


def test_joint_span_head_passes_through_official(tmp_path):
    model = randomise(albert_tf.AlbertSpanPredictor(AlbertEncoder(small()), joint=True, start_top=2, end_top=2))
    save_official(model, tmp_path)
    loaded = load_official(tmp_path)
    assert loaded.joint
    for ours, theirs in zip(loaded.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


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
    model = randomise(AlbertPretrainer(AlbertEncoder(small())))
    prefix = save_official(model, tmp_path)
    tensors = read_tensors(prefix)
    slots = {f"{name}/{slot}": value for name, value in tensors.items() for slot in ("adam_m", "adam_v", "Adam_1")}
    write_tensors(prefix, tensors | slots | {"global_step": np.int64(3)})
    same(load_official(tmp_path), model)


@pytest.mark.parametrize("state", [b"\xff\xfe", b"model_checkpoint_path: ", b"\x00" * 9, b""])
def test_a_damaged_state_file_is_passed_over(state, tmp_path):
    model = randomise(AlbertEncoder(small()))
    save_official(model, tmp_path)
    (tmp_path / "checkpoint").write_bytes(state)
    same(load_official(tmp_path), model)


def test_a_model_with_more_groups_starts_from_the_first_one(tmp_path, caplog):
    one = randomise(AlbertPretrainer(AlbertEncoder(small())))
    save_official(one, tmp_path)
    many = AlbertPretrainer(AlbertEncoder(small(num_hidden_groups=3, inner_group_num=2)))
    with caplog.at_level(logging.WARNING):
        load_official(tmp_path, many)
    assert "group_2/inner_group_1/attention_1/self/query/kernel" in caplog.text
    twice = AlbertEncoder(small(num_hidden_layers=10))
    load_official(tmp_path, twice)
    np.testing.assert_allclose(many.encoder(FEATURES)["sequence_output"], twice(FEATURES)["sequence_output"], atol=1e-5)


def test_a_classifier_takes_the_encoder_and_says_what_it_leaves(tmp_path, caplog):
    pretrained = randomise(AlbertPretrainer(AlbertEncoder(small())))
    save_official(pretrained, tmp_path)
    model = albert_tf.AlbertClassifier(AlbertEncoder(small()), num_classes=3)
    with caplog.at_level(logging.WARNING):
        load_official(tmp_path, model)
    assert "cls/predictions/output_bias" in caplog.text and "classifier/kernel" in caplog.text
    same(model.encoder, pretrained.encoder)


def test_unfitting_tensors_are_all_named_and_nothing_is_changed(tmp_path):
    prefix = save_official(randomise(AlbertPretrainer(AlbertEncoder(small()))), tmp_path)
    tensors = read_tensors(prefix)
    del tensors["bert/pooler/dense/bias"]
    tensors["cls/predictions/output_bias"] = np.zeros(24, "float32")
    tensors["bert/encoder/strange"] = np.zeros(1, "float32")
    write_tensors(prefix, tensors)
    model = AlbertPretrainer(AlbertEncoder(small()))
    before = model.get_weights()
    with pytest.raises(UserError) as caught:
        load_official(prefix, model)
    for text in ("missing: bert/pooler/dense/bias", "output_bias (24,), expected (23,)", "bert/encoder/strange"):
        assert text in str(caught.value)
    for ours, theirs in zip(model.get_weights(), before):
        np.testing.assert_array_equal(ours, theirs)


def test_heads_that_a_pretrainer_needs_are_missed(tmp_path):
    save_official(randomise(AlbertEncoder(small())), tmp_path)
    with pytest.raises(UserError, match=r"missing: .*cls/seq_relationship/output_weights"):
        load_official(tmp_path, AlbertPretrainer(AlbertEncoder(small())))


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
    same(load_official(tmp_path / "two"), model)
    same(load_official(tmp_path / "two.index"), model)
    with pytest.raises(UserError, match=r"no .*model\.safetensors"):
        load_huggingface(tmp_path)
    with pytest.raises(UserError, match="keras-hub cannot load the preset"):
        load_keras_hub(tmp_path)


@pytest.mark.parametrize("size", [0, 4, 300, 60000])
def test_damaged_safetensors(size, tmp_path):
    folder = shutil.copytree(GOLD / "huggingface" / "bert", tmp_path / "case")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(UserError, match="as safetensors"):
        load_huggingface(folder)


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
    same(load_huggingface(folder), whole)
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
    "change", [{"embedding_size": 8, "always_project": True}, {"embedding_size": 8, "sharing": "none"}]
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
    same(load_huggingface(folder), whole)


def test_official_form_needs_an_official_activation(tmp_path):
    for change, message in (
        ({"hidden_act": "gelu_erf"}, "gelu_erf"),
        ({"embedding_size": 8, "always_project": True}, "projection"),
    ):
        with pytest.raises(UserError, match=message):
            save_official(AlbertEncoder(small(**change)), tmp_path)
    assert not list(tmp_path.iterdir())


def test_bundles_are_tensorflows_own(tmp_path):
    prefix = save_official(randomise(AlbertEncoder(small())), tmp_path)
    assert "bert/pooler/dense/kernel" in dict(tf.train.list_variables(prefix))
    assert json.loads((tmp_path / "albert_config.json").read_text())["hidden_size"] == 8

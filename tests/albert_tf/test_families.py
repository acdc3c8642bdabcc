"""Families of published models: one from outside, and what configuration files of ModernBERT's form may say."""

import json
import sys

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.numpy import load_file, save_file

import albert_tf
from albert_tf import AlbertClassifier, AlbertConfig, AlbertEncoder, AlbertPretrainer
from albert_tf.analysis.cost import parameters
from albert_tf.checkpoints import load_huggingface, save_huggingface
from albert_tf.families import families
from serving.inference import make_encoder
from tests.albert_tf.tiny import KINDS, batch, small, table
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("eagerly")
NOVA = dict(words=40, width=16, depth=2, heads=2, inside=24, act="silu", longest=32)


@pytest.fixture
def nova(tmp_path, monkeypatch):
    """Installs a package whose entry point names a family."""
    (tmp_path / "site" / "nova-1.0.dist-info").mkdir(parents=True)
    metadata = {"METADATA": "Name: nova\nVersion: 1.0\n"}
    metadata["entry_points.txt"] = "[albert_tf.families]\nnova = tests.albert_tf.nova:NOVA\n"
    for name, text in metadata.items():
        (tmp_path / "site" / "nova-1.0.dist-info" / name).write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    families.cache_clear()
    yield
    families.cache_clear()


def test_a_family_of_another_package_loads_is_tuned_and_exports(nova, tmp_path):
    config = AlbertConfig.from_dict(NOVA | {"model_type": "nova", "temperature_of_training": 2})
    assert (config.hidden_act, config.embedding_size, config.feed_forward) == ("silu", 16, "glu")
    model = AlbertClassifier(config, 3, labels=["a", "b", "c"])
    save_huggingface(model, tmp_path / "nova")
    tensors, values = (
        load_file(tmp_path / "nova" / "model.safetensors"),
        json.loads((tmp_path / "nova" / "config.json").read_text()),
    )
    assert tensors["nova.step.1.qkv.weight"].shape == (48, 16) and "nova.pool.bias" in tensors
    assert values["architectures"] == ["NovaForSequenceClassification"] and values["width"] == 16
    loaded = albert_tf.load(tmp_path / "nova")
    features = batch()
    assert_array_equal(loaded.model(features), model(features))
    loaded.model.compile()
    loaded.model.fit(features, np.array([0, 1, 2, 0]), verbose=0)
    encoded = tf.function(make_encoder(loaded.model), autograph=False)(
        features["input_ids"], lengths=features["input_mask"].sum(axis=1).astype("int32")
    )
    expected = loaded.model.encoder(features)["pooled_output"]
    assert_allclose(encoded["pooled_output"], expected, atol=1e-5)


def test_without_the_package_its_models_are_refused():
    with refused("model_type 'nova' is not supported"):
        AlbertConfig.from_dict(NOVA | {"model_type": "nova"})


MODERN = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_attention_heads=2)
MODERN |= {"model_type": "modernbert"}
FULL, LOCAL = "full_attention", "sliding_attention"
BASES = {FULL: {"rope_type": "default", "rope_theta": 5000.0}, LOCAL: {"rope_type": "default", "rope_theta": 70.0}}
# Keys of a file, and the fields that differ from those without them.
FOLLOWED = [
    ({}, dict(attention_window=64, global_attention_every=3, rotary_theta=160000.0, rotary_local_theta=10000.0)),
    ({"rope_parameters": BASES}, dict(rotary_theta=5000.0, rotary_local_theta=70.0)),
    # The new keys win, and an old one counts where they say nothing.
    ({"rope_parameters": {FULL: BASES[FULL]}, "global_rope_theta": 3.0, "local_rope_theta": 9.0},
     dict(rotary_theta=5000.0, rotary_local_theta=9.0)),
    ({"global_rope_theta": 80000.0, "local_rope_theta": None}, dict(rotary_theta=80000.0, rotary_local_theta=0.0)),
    ({"layer_types": [FULL, LOCAL] * 2, "global_attn_every_n_layers": 3}, dict(global_attention_every=2)),
    ({"layer_types": [LOCAL] * 4, "local_attention": 9}, dict(global_attention_every=0, attention_window=4)),
    ({"global_attn_every_n_layers": 1}, dict(attention_window=0, rotary_local_theta=0.0)),
    ({"hidden_activation": "silu", "norm_eps": 1e-12, "layer_norm_eps": 1.0},
     dict(hidden_act="silu", layer_norm_eps=1e-12)),
    ({"classifier_pooling": "mean", "tie_word_embeddings": False}, dict(pooling="mean", tie_word_embeddings=False))
]  # fmt: skip


@pytest.mark.parametrize("values, expected", FOLLOWED)
def test_keys_of_modernbert_old_and_new_are_followed_and_written(values, expected, tmp_path):
    config = AlbertConfig.from_dict(MODERN | values)
    assert {name: getattr(config, name) for name in expected} == expected
    save_huggingface(AlbertEncoder(config, pooler=False), tmp_path)
    assert load_huggingface(tmp_path).config == config


def test_published_sizes_have_the_published_number_of_weights():
    counts = {name: parameters(AlbertConfig.named(f"modernbert_{name}")).encoder for name in ("base", "large")}
    assert counts == {"base": 149_014_272, "large": 394_781_696}
    model = AlbertPretrainer(AlbertConfig.from_dict(MODERN | {"tie_word_embeddings": False}), pair_task=None)
    assert parameters(model.encoder.config).total - parameters(model.encoder.config).pooler - 2 * 16 - 2 == (
        model.count_params()
    )


OTHERS = table("""
    {"layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"]} | layer_types
    {"layer_types": ["full_attention", "chunked_attention", "chunked_attention", "full_attention"]} | layer_types
    {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 9.0}}} | rotary positions full_attention
    {"rope_scaling": {"type": "linear", "factor": 2}} | rotary positions rope_scaling
    {"norm_bias": true}             | attention_bias None with norm_bias True is another architecture
    {"decoder_bias": false}         | decoder_bias False is another architecture
    {"classifier_bias": true}       | classifier_bias True is another architecture
    {"classifier_pooling": "max"}   | pooling 'max' is none of cls, mean
    {"local_attention": 1}          | local_attention must be a whole number of at least 2
    {"hiden_activation": "silu"}    | did you mean 'hidden_activation'
""")


@pytest.mark.parametrize("values, message", OTHERS)
def test_other_models_of_this_type_are_refused_by_the_key(values, message):
    with refused(message):
        AlbertConfig.from_dict(MODERN | json.loads(values))


def test_a_head_with_its_own_table_of_words_is_never_tied(tmp_path):
    bert = small(sharing="none", embedding_size=16, tie_word_embeddings=False)
    model = AlbertPretrainer(bert)
    save_huggingface(model, tmp_path)
    again = load_huggingface(tmp_path)
    assert_array_equal(again(batch("pretrainer"))["masked_lm_logits"], model(batch("pretrainer"))["masked_lm_logits"])
    tensors = load_file(tmp_path / "model.safetensors")
    assert (tensors["cls.predictions.decoder.weight"] != tensors["bert.embeddings.word_embeddings.weight"]).any()
    del tensors["cls.predictions.decoder.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with refused("missing: cls.predictions.decoder.weight"):
        load_huggingface(tmp_path)
    # Without a head for words there is nothing to tie.
    save_huggingface(KINDS["classifier"](bert), tmp_path / "classifier")
    assert albert_tf.load(tmp_path / "classifier").model.encoder.config == bert


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_an_export_computes_what_the_last_layer_sees_in_its_window(pooling):
    # The last of five layers is local, and computes [CLS] alone where that is all that is asked for.
    values = MODERN | dict(num_hidden_layers=5, local_attention=8, classifier_pooling=pooling)
    encoder, random = AlbertEncoder(AlbertConfig.from_dict(values)), np.random.default_rng(0)
    for weight in encoder.weights:
        weight.assign(random.normal(scale=0.3, size=weight.shape) + (weight.name == "gamma"))
    lengths = np.array([40, 7, 23], "int32")
    mask = (np.arange(40) < lengths[:, None]).astype("int32")
    ids = random.integers(3, 40, (3, 40)).astype("int32") * mask
    expected = encoder({"input_ids": ids, "input_mask": mask})
    made = make_encoder(encoder)
    whole = tf.function(made, autograph=False)(ids, lengths=lengths)
    alone = tf.function(made.pooled, autograph=False)(ids, lengths)
    for found in (whole["pooled_output"], alone):
        assert_allclose(found, expected["pooled_output"], atol=1e-5)
    states = np.asarray(whole["sequence_output"]), np.asarray(expected["sequence_output"])
    assert_allclose(states[0][mask > 0], states[1][mask > 0], atol=3e-5)

"""Parity with transformers (PyTorch) on RoBERTa: hidden states, words, and every head; and the way back to the byte.

The gold of two heads is committed. All heads are compared with PyTorch itself where it is installed, with transformers.
"""

import importlib.util
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from albert_tf import AlbertClassifier, AlbertEncoder, AlbertPretrainer, AlbertSpanPredictor
from albert_tf.checkpoints import load_huggingface, save_huggingface
from albert_tf.models.classifiers import AlbertRegressor
from tfrecords.base.errors import UserError

GOLD = Path(__file__).parent / "gold" / "huggingface"
TOLERANCE = dict(atol=1e-5, rtol=0)


def maker():
    """The module that made the gold."""
    spec = importlib.util.spec_from_file_location("make_roberta", GOLD / "make_roberta.py")
    module = sys.modules.setdefault("make_roberta", importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module


def check(folder):
    """Compares hidden states, at padding too, and what the head says; returns the model."""
    model = load_huggingface(folder)
    features, gold = dict(np.load(folder / "inputs.npz")), dict(np.load(folder / "outputs.npz"))
    encoder = getattr(model, "encoder", model)
    width = features["input_ids"].shape[-1]
    rows = {name: value.reshape(-1, width) for name, value in features.items()}
    encoded = encoder(rows)
    np.testing.assert_allclose(np.stack(encoded["hidden_states"]), gold["hidden_states"], **TOLERANCE)
    if model is encoder:
        np.testing.assert_allclose(encoded["pooled_output"], gold["pooler_output"], **TOLERANCE)
        return model
    if isinstance(model, AlbertSpanPredictor):
        answers = model(features | {"p_mask": 1 - features["input_mask"]})
        for end in ("start", "end"):
            allowed = np.where(features["input_mask"], gold[f"{end}_logits"], -1e30)
            expected = allowed - np.log(np.exp(allowed).sum(axis=1, keepdims=True))
            ours = np.asarray(answers[f"{end}_log_probs"])
            tokens = features["input_mask"] > 0
            np.testing.assert_allclose(ours[tokens], expected[tokens], **TOLERANCE)
        return model
    answers = model(features)
    logits = answers["masked_lm_logits"] if isinstance(model, AlbertPretrainer) else answers
    np.testing.assert_allclose(logits, gold["logits"], **TOLERANCE)
    return model


def check_way_back(model, folder, path):
    save_huggingface(model, path)
    assert (path / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    again = load_huggingface(path)
    assert type(again) is type(model)
    assert getattr(again, "encoder", again).config == getattr(model, "encoder", model).config


@pytest.mark.parametrize("name", ["roberta", "roberta_classifier"])
def test_gold_and_the_way_back_to_the_byte(name, tmp_path):
    model = check(GOLD / name)
    assert isinstance(model, AlbertPretrainer if name == "roberta" else AlbertClassifier)
    check_way_back(model, GOLD / name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["roberta", "roberta_model", "roberta_classifier", "roberta_tagger", "roberta_spans", "roberta_choices"],
)
def test_every_head_against_transformers(name, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    made = maker()
    folder, back = tmp_path / "theirs", tmp_path / "ours"
    made.make(folder, made.HEADS[name], seed=1)
    check_way_back(check(folder), folder, back)
    # transformers misses nothing in what we wrote, and has nothing over.
    _, found = getattr(transformers, made.HEADS[name]).from_pretrained(back, output_loading_info=True)
    assert not found["missing_keys"] and not found["unexpected_keys"] and not found["mismatched_keys"]


def change(folder, **changes):
    """The tensors of a gold folder, written beside its configuration with some more, or without those given as None."""
    tensors = load_file(GOLD / "roberta" / "model.safetensors") | changes
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_bytes((GOLD / "roberta" / "config.json").read_bytes())
    save_file({name: value for name, value in tensors.items() if value is not None}, folder / "model.safetensors")
    return folder


def test_tied_copies_counters_and_a_pooler_are_taken(tmp_path):
    tensors = load_file(GOLD / "roberta" / "model.safetensors")
    copies = {
        "lm_head.decoder.weight": tensors["roberta.embeddings.word_embeddings.weight"],
        "lm_head.decoder.bias": tensors["lm_head.bias"],
        "roberta.embeddings.position_ids": np.arange(14)[None],
        "roberta.pooler.dense.weight": np.eye(16, dtype="float32"),
        "roberta.pooler.dense.bias": np.zeros(16, "float32"),
    }
    model = load_huggingface(change(tmp_path / "copies", **copies))
    assert model.encoder.pooler is not None
    save_huggingface(model, tmp_path / "out")
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert written.keys() == tensors.keys() | {"roberta.pooler.dense.weight", "roberta.pooler.dense.bias"}
    untied = copies["lm_head.decoder.weight"] + 1
    with pytest.raises(UserError, match=r"not part of this model: lm_head\.decoder\.weight"):
        load_huggingface(change(tmp_path / "untied", **{"lm_head.decoder.weight": untied}))


def test_half_a_checkpoint_is_an_error_that_names_the_other_half(tmp_path):
    with pytest.raises(UserError, match=r"missing: lm_head\.dense\.weight"):
        load_huggingface(change(tmp_path / "half", **{"lm_head.dense.weight": None}))


def test_a_headless_encoder_and_a_model_to_fill(tmp_path):
    model = load_huggingface(GOLD / "roberta")
    ids = np.load(GOLD / "roberta" / "inputs.npz")["input_ids"]
    other = AlbertPretrainer(model.encoder.config, pair_task=None)
    load_huggingface(GOLD / "roberta", other)
    np.testing.assert_array_equal(other(ids)["masked_lm_logits"], model(ids)["masked_lm_logits"])
    save_huggingface(model.encoder, tmp_path)
    again = load_huggingface(tmp_path)
    assert isinstance(again, AlbertEncoder) and again.config == model.encoder.config
    np.testing.assert_array_equal(again(ids)["sequence_output"], model.encoder(ids)["sequence_output"])


def test_a_regressor_passes_through_and_a_pooler_beside_the_head_is_left(tmp_path, caplog):
    config = load_huggingface(GOLD / "roberta").encoder.config
    model = AlbertRegressor(config)
    save_huggingface(model, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors["classifier.out_proj.weight"].shape == (1, 16)
    save_file(tensors | {"roberta.pooler.dense.weight": np.zeros((16, 16), "f4")}, tmp_path / "model.safetensors")
    again = load_huggingface(tmp_path)
    ids = np.load(GOLD / "roberta" / "inputs.npz")["input_ids"]
    np.testing.assert_array_equal(again(ids), model(ids))


def test_the_head_drops_out_on_both_sides_of_its_first_layer():
    config = load_huggingface(GOLD / "roberta").encoder.config.replace(
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    model = AlbertClassifier(config, 2, dropout=0.5)
    ids = np.load(GOLD / "roberta" / "inputs.npz")["input_ids"]
    keras.utils.set_random_seed(0)
    vectors = np.stack([np.asarray(model.vectors(ids, training=True)) for _ in range(2)])
    assert not np.allclose(vectors[0], vectors[1])
    # None of it is zeroed itself: what follows drops those.
    assert (vectors != 0).all()
    np.testing.assert_array_equal(model.vectors(ids, training=False), model.encoder(ids)["pooled_output"])

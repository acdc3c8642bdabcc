"""Parity with google-research/albert's own code, on its checkpoints with its numbers (tests/albert_tf/gold)."""

import filecmp
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from albert_tf.checkpoints import load_official, save_official

GOLD = Path(__file__).parent / "gold" / "official"
CASES = sorted(case.parent.name for case in GOLD.glob("*/outputs.npz"))


@pytest.fixture(params=CASES, scope="module")
def case(request):
    folder = GOLD / request.param
    return folder, load_official(folder), dict(np.load(folder / "inputs.npz")), np.load(folder / "outputs.npz")


def test_every_activation(case):
    _, model, features, gold = case
    outputs = model.encoder(features)
    for name in ("embedding_output", "sequence_output", "pooled_output"):
        assert_allclose(outputs[name], gold[name], atol=1e-5, rtol=0)
    assert_allclose(np.stack(outputs["hidden_states"][1:]), gold["all_layers"], atol=1e-5, rtol=0)


def test_log_probabilities_and_losses(case):
    _, model, features, gold = case
    logits = model(features)
    words = keras.ops.log_softmax(logits["masked_lm_logits"])
    assert_allclose(np.reshape(words, (-1, 300)), gold["mlm_log_probs"], atol=1e-5, rtol=0)
    pairs = keras.ops.log_softmax(logits["pair_logits"])
    assert_allclose(pairs, gold["sop_log_probs"], atol=1e-5, rtol=0)
    loss = model.compute_loss(x=features, y_pred=logits)
    assert_allclose(loss, gold["total_loss"], atol=1e-5, rtol=0)


def test_norm_of_all_gradients(case):
    _, model, features, gold = case
    with tf.GradientTape() as tape:
        loss = model.compute_loss(x=features, y_pred=model(features, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    # Token types are gathered: the official norm is over the gathered rows, repeats and all, as TensorFlow lists them.
    assert_allclose(tf.linalg.global_norm(gradients), gold["grad_global_norm"], rtol=1e-4)


def test_official_to_ours_to_official_is_bit_equal(case, tmp_path):
    folder, model, _, _ = case
    prefix = save_official(model, tmp_path)
    for suffix in (".index", ".data-00000-of-00001"):
        assert filecmp.cmp(prefix + suffix, folder / f"model.ckpt-best{suffix}", shallow=False)

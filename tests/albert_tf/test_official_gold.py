"""Parity with google-research/albert's own code, on its checkpoints with its numbers (tests/albert_tf/gold).

Ten training steps are replayed: losses and every final weight.
"""

import filecmp
import json
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from albert_tf.checkpoints import load_official, save_official
from albert_tf.optimizers import OPTIMIZERS, create_optimizer

GOLD = Path(__file__).parent / "gold" / "official"
CASES = sorted(case.parent.name for case in GOLD.glob("*/outputs.npz"))


@pytest.fixture(params=CASES, scope="module")
def case(request):
    folder = GOLD / request.param
    return folder, load_official(folder), dict(np.load(folder / "inputs.npz")), np.load(folder / "outputs.npz")


def test_activations_log_probabilities_and_losses(case):
    _, model, features, gold = case
    outputs = model.encoder(features)
    for name in ("embedding_output", "sequence_output", "pooled_output"):
        assert_allclose(outputs[name], gold[name], atol=1e-5, rtol=0)
    assert_allclose(np.stack(outputs["hidden_states"][1:]), gold["all_layers"], atol=1e-5, rtol=0)
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


def with_official_norm(kind):
    """The optimizer with the official norm: repeated lookups of an embedding row count separately."""

    class Official(kind):
        def apply(self, grads, trainable_variables=None):
            values = [getattr(gradient, "values", gradient) for gradient in grads if gradient is not None]
            self.official = tf.sqrt(sum(tf.reduce_sum(tf.square(value)) for value in values))
            super().apply(grads, trainable_variables)

        def _clip_gradients(self, gradients):
            super()._clip_gradients(gradients)
            return [gradient / max(self.official, 1.0) for gradient in gradients]

    return Official


@pytest.mark.parametrize("case, name", [("tiny_all_shared", "lamb"), ("tiny_adamw", "adamw")])
def test_ten_official_steps(tmp_path, monkeypatch, case, name):
    folder = GOLD / case
    settings = json.loads((folder / "meta.json").read_text())["train"]
    model = load_official(folder)
    monkeypatch.setitem(OPTIMIZERS, name, with_official_norm(OPTIMIZERS[name]))
    steps = settings["num_train_steps"], settings["num_warmup_steps"]
    optimizer = create_optimizer(name, settings["init_lr"], *steps, settings["poly_power"])
    assert optimizer.global_clipnorm == 1.0
    model.compile(optimizer=optimizer, run_eagerly=True)
    batch = {key: np.asarray(value) for key, value in np.load(folder / "inputs.npz").items()}

    losses = []
    for _ in range(10):
        losses.append(model.train_on_batch(batch, return_dict=True)["loss"])
        model.reset_metrics()
    losses.append(model.test_on_batch(batch, return_dict=True)["loss"])

    assert_allclose(losses, settings["losses"], rtol=1e-5)
    final = tf.train.load_checkpoint(save_official(model, tmp_path))
    expected = np.load(folder / f"after_{name}.npz")
    assert len(expected.files) == 32
    for key in expected.files:
        value = final.get_tensor(key.replace("|", "/"))
        assert_allclose(value, expected[key], atol=1e-5, rtol=0, err_msg=key)

"""Ten official training steps, replayed: losses and every final weight (google-research/albert's own figures)."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from albert_tf.checkpoints import load_official, save_official
from albert_tf.optimizers import OPTIMIZERS, create_optimizer

GOLD = Path(__file__).parents[1] / "gold" / "official"


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

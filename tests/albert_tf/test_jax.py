"""`model.fit` under KERAS_BACKEND=jax is Keras's own; the layers compute there what they compute under TensorFlow."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import albert_tf
from tests.albert_tf.depth_cases import TEXTS, filled, small

JAX = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(Path(__file__).parents[2])}


def fitted():
    """The losses of two epochs, the weights after them, and an answer; walked by a loop, as deep models are."""
    model = filled(albert_tf.AlbertClassifier(albert_tf.AlbertEncoder(small(), walk="loop"), 2, 0.0))
    model.compile(keras.optimizers.SGD(0.1))
    losses = model.fit(TEXTS, np.array([0, 1, 1]), epochs=2, shuffle=False, verbose=0).history["loss"]
    weights = {variable.path: weight for variable, weight in zip(model.weights, model.get_weights(), strict=True)}
    return weights | {"losses": np.array(losses), "logits": model.predict(TEXTS, verbose=0)}


@pytest.mark.slow("jax")
def test_a_fit_under_jax_learns_what_one_under_tensorflow_does(tmp_path):
    pytest.importorskip("jax", reason="the optional extra `jax` is not installed")
    command = [sys.executable, __file__, str(tmp_path / "jax.npz")]
    done = subprocess.run(command, env=os.environ | JAX, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found, expected = np.load(tmp_path / "jax.npz"), fitted()
    assert set(found.files) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)


def test_other_backends_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "torch")
    with pytest.raises(ValueError, match="is torch; models need tensorflow or jax: set KERAS_BACKEND=tensorflow"):
        runpy.run_path(JAX["PYTHONPATH"] + "/albert_tf/base/layers.py")


if __name__ == "__main__":
    assert keras.backend.backend() == "jax"
    assert "tensorflow" not in sys.modules, "albert_tf imports TensorFlow under another backend"
    np.savez(sys.argv[1], **fitted())

"""The same code under KERAS_BACKEND=jax: within 1e-5 of TensorFlow, forward and backward, in every loop over depth."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from albert_tf import AlbertConfig
from tests.albert_tf import portable

pytestmark = pytest.mark.usefixtures("eagerly")
RECORDS = Path(__file__).parents[1] / "stored" / "dynamic" / "*.tfrecord*"
JAX = {
    "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(Path(__file__).parents[2]),
    # Programs that run once or twice need not be fast.
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
}  # fmt: skip
each = pytest.mark.parametrize(
    "part", [*portable.PARTS, *(pytest.param(name, marks=pytest.mark.slow("jax")) for name in portable.SLOW_PARTS)]
)


@pytest.fixture(scope="module")
def computed(made_once):
    """What one process of JAX computes for all default cases, and another for all slow ones: 15 s are its start and
    compilations."""
    pytest.importorskip("jax", reason="the optional extra `jax` is not installed")

    def of(*arguments):
        def make(folder):
            command = [sys.executable, portable.__file__, str(folder / "jax.npz"), *arguments]
            done = subprocess.run(command, env=os.environ | JAX, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-2000:]

        return np.load(made_once("-".join(["jax", *arguments]), make) / "jax.npz")

    return of


@each
def test_jax_agrees_with_tensorflow(computed, part):
    is_slow = part in portable.SLOW_PARTS
    found = {
        name.split("::")[1]: value
        for name, value in computed(*["slow"] * is_slow).items()
        if name.startswith(f"{part}::")
    }
    expected = (portable.SLOW_PARTS if is_slow else portable.PARTS)[part]()
    assert set(found) == set(expected) and len(found) > 5
    for name, value in expected.items():
        # A loss is a sum of terms of both signs.
        scale = max(10 if name == "loss" else 1, np.abs(np.asarray(value, "float64")).max())
        np.testing.assert_allclose(found[name], value, atol=1e-5 * scale, err_msg=name)


@pytest.mark.parametrize("command", ["run_finetuning", "run_pretraining"])
@pytest.mark.slow("jax")
def test_commands_under_jax_refuse_the_strategies_of_tensorflow_in_one_line(run_module, tmp_path, command):
    """No line is printed at start-up either."""
    pytest.importorskip("jax", reason="the optional extra `jax` is not installed")
    environment = os.environ | JAX
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    flags = ["--task=sst2", f"--data_dir={tmp_path}"] if command == "run_finetuning" else [f"--train_data={RECORDS}"]
    AlbertConfig.named("albert_tiny").to_json(tmp_path / "config.json")
    flags += [f"--output_dir={tmp_path / 'run'}", f"--config={tmp_path / 'config.json'}", "--strategy=mirrored"]
    done = run_module(f"albert_tf.{command}", *flags, env=environment)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: --strategy=mirrored needs KERAS_BACKEND=tensorflow, not jax")
    assert not (tmp_path / "run").exists()

"""The same code under KERAS_BACKEND=jax: within 1e-5 of TensorFlow, forward, training, unrolled and in a loop."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from albert_tf import AlbertConfig

RECORDS = Path(__file__).parents[1] / "stored" / "dynamic" / "*.tfrecord*"
PORTABLE = Path(__file__).parent / "portable.py"
JAX = {
    "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(Path.cwd()),
    # Programs that run once or twice need not be fast.
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
}  # fmt: skip


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_jax_agrees_with_tensorflow(tmp_path, whole):
    pytest.importorskip("jax", reason="the optional extra `jax` is not installed")
    environment = os.environ | JAX
    command = [sys.executable, str(PORTABLE), str(tmp_path / "jax.npz"), *(["whole"] if whole else [])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "backend: jax" in done.stdout
    jax, ours = np.load(tmp_path / "jax.npz"), runpy.run_path(str(PORTABLE))["compute"](whole)
    assert set(jax.files) == set(ours)
    for name, value in ours.items():
        np.testing.assert_allclose(jax[name], value, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("command", ["run_finetuning", pytest.param("run_pretraining", marks=pytest.mark.slow)])
@pytest.mark.slow
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

"""One run on one device, on several, and under JAX: the same losses and weights, the same files for what follows."""

import dataclasses
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from albert_tf import AlbertConfig
from albert_tf.checkpoints.formats import load_keras
from albert_tf.training import pretraining
from tests.albert_tf.training.trainers import history

ROOT = Path(__file__).parents[3]
DEVICES = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
"""
MIRRORED = DEVICES + "from albert_tf.run_pretraining import run; run()"
MEASURED = ("step", "loss", "masked_lm_accuracy", "sentence_order_loss", "val_loss", "val_masked_lm_accuracy")


@pytest.fixture(scope="module")
def settings(tiny_settings, tmp_path_factory):
    """Without dropout, whose masks depend on which device draws them."""
    folder = tmp_path_factory.mktemp("devices")
    config = AlbertConfig.from_json(tiny_settings.config)
    config = config.replace(num_hidden_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config.to_json(folder / "config.json")
    return dataclasses.replace(
        tiny_settings, config=str(folder / "config.json"), num_train_steps=3, output_dir=str(folder / "one"),
        eval_batch_size=8, max_eval_steps=0, log_steps=1
    )  # fmt: skip


@pytest.fixture(scope="module")
def one_device(settings):
    return pretraining.pretrain(settings)


@pytest.fixture(scope="module")
def in_parts(settings, tmp_path_factory):
    """One device, each batch in two parts."""
    folder = tmp_path_factory.mktemp("parts") / "one"
    settings = dataclasses.replace(settings, output_dir=str(folder), gradient_accumulation_steps=2)
    pretraining.pretrain(settings)
    return settings


def start(settings, *code, **environment):
    """`python -m albert_tf.run_pretraining` (or -c CODE) with these settings, in an environment of its own."""
    flags = [f"--{key}={value}" for key, value in dataclasses.asdict(settings).items() if value not in ("", None)]
    command = [sys.executable, *(code or ("-m", "albert_tf.run_pretraining")), *flags]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1"} | environment
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(*processes):
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    for process, output in zip(processes, outputs):
        assert process.returncode == 0, output[:4000] + output[-2000:]
    return outputs


def assert_same_run(folder, other, columns=MEASURED):
    for name in ("last.keras", "model.keras"):
        models = [load_keras(path / name, compile=name == "last.keras") for path in (folder, other)]
        for one, two in zip(*(model.get_weights() for model in models), strict=True):
            np.testing.assert_allclose(one, two, atol=1e-5)
    for one, two in zip(history(folder), history(other), strict=True):
        for key in columns:
            if one[key] and two[key]:  # A run that was stopped evaluates there too.
                assert float(one[key]) == pytest.approx(float(two[key]), rel=1e-4), (key, one["step"])


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def start_workers(settings):
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    clusters = [{"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}} for index in (0, 1)]
    settings = dataclasses.replace(settings, strategy="multi_worker")
    return [start(settings, TF_CONFIG=json.dumps(cluster)) for cluster in clusters]


@pytest.mark.slow
def test_two_killed_workers_go_on_as_if_nothing_had_been(settings, one_device, tmp_path):
    settings = dataclasses.replace(settings, output_dir=str(tmp_path / "two"))
    workers = start_workers(settings)
    while not (tmp_path / "two" / "last.keras").is_file() and workers[0].poll() is None:
        time.sleep(0.02)
    for worker in workers:
        worker.kill()
        worker.communicate()
    chief, other = finish(*start_workers(settings))
    assert "Resuming at step" in chief and "Resuming" not in other
    assert_same_run(tmp_path / "two", one_device)
    assert json.loads((tmp_path / "two" / "run.json").read_text())["strategy"] == "multi_worker"


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mirrored", "multi_worker"])
def test_parts_and_xla_over_several_devices_equal_one(in_parts, tmp_path, strategy):
    """Each replica adds up its own gradients, compiled; they are summed once an update."""
    settings = dataclasses.replace(in_parts, output_dir=str(tmp_path / "two"), jit_compile=True, strategy=strategy)
    processes = [start(settings, "-c", MIRRORED)] if strategy == "mirrored" else start_workers(settings)
    finish(*processes)
    assert_same_run(tmp_path / "two", Path(in_parts.output_dir))

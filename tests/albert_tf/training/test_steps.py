"""A step is that of Keras's `fit`, and that of its batch in parts or shared by devices, whatever the head and loss."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from albert_tf.training.loop.devices import Devices
from albert_tf.training.loop.steps import Steps
from albert_tf.training.loop.training import make_steps
from tests.albert_tf.training import portable_parts
from tests.albert_tf.training.portable_parts import KINDS, LENGTH, check, dataset_of, made

ROOT = Path(__file__).parents[3]
MIRRORED = """
import sys
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from albert_tf.training.loop.devices import make_devices
from tests.albert_tf.training.portable_parts import KINDS, check
devices = make_devices("mirrored")
for kind in sys.argv[1:] or KINDS:
    for parts in (1, 2):
        check(kind, parts, devices)
    print("checked", kind, flush=True)
"""


# Each way of adding up: by words, pairs, rows, weights and whole batches, with a teacher.
DEFAULT = (
    *("packed", "class weights", "regularized", "sum"),
    *("tags, early exit", "joint spans", "student", "scored text pairs"),
)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind not in DEFAULT)) for kind in KINDS]
)
@pytest.mark.usefixtures("eagerly")
def test_a_batch_in_parts_makes_the_same_update(kind):
    """Three parts of eight rows are not of one size."""
    check(kind, 3)


def test_what_is_computed_of_the_whole_batch_first_draws_no_other_dropout(monkeypatch, eagerly):
    monkeypatch.setattr(portable_parts, "CONFIG", portable_parts.CONFIG.replace(hidden_dropout_prob=0.1))
    model = made("student", keras.optimizers.SGD(1.0))
    steps = make_steps(model, Devices(), False, 2)
    batches = steps.batches(lambda *_: dataset_of([portable_parts.WORDS] * 2), training=True)()
    states = [one.state for layer in model._flatten_layers() for one in layer._seed_generators]
    before = [np.array(state) for state in states]
    assert len(steps._known((next(batches), next(batches)))) > 1 and before
    for state, value in zip(states, before):
        np.testing.assert_array_equal(state, value)


# All kinds at once would take five minutes of graphs.
FOURTHS = [list(KINDS)[number::4] for number in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("kinds", FOURTHS)
def test_a_batch_shared_by_devices_and_in_parts(kinds):
    environment, command = os.environ | {"PYTHONPATH": str(ROOT)}, [sys.executable, "-c", MIRRORED, *kinds]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("checked") == len(kinds)


# Traced by default: labels with their weights, a teacher; a graph takes 4 s or more.
IN_GRAPHS = "distilled tags"


def shorter(value):
    return value[..., : LENGTH - 1] if value.shape[1:] and value.shape[-1] == LENGTH else value


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind != IN_GRAPHS)) for kind in KINDS])
def test_steps_in_a_graph_are_those_of_fit(kind, monkeypatch, in_graphs):
    """On batches of two lengths, with dropout. Without a graph `fit` takes a tenth of the time."""
    for name in ("CONFIG", "DEEP", "HALTING", "RELATIVE"):
        config = getattr(portable_parts, name)
        monkeypatch.setattr(portable_parts, name, config.replace(hidden_dropout_prob=0.1))
    batch = KINDS[kind][1]
    batches = [batch if len(batch) > 1 else batch[0]]
    dataset = dataset_of([*batches, keras.tree.map_structure(shorter, batches[0])])
    outcomes = []
    for fits in (True, False):
        model = made(kind, keras.optimizers.SGD(0.1))
        if fits:
            model.run_eagerly = True
            figures = {name: values[0] for name, values in model.fit(dataset, verbose=0).history.items()}
        else:
            steps = Steps(model, Devices(), jit_compile=False)
            for one in steps.batches(lambda *shares: dataset, training=True)():
                steps.train(one)
            figures = steps.results()
        outcomes.append((figures, model.get_weights()))
    (of_fit, weights), (ours, own_weights) = outcomes
    assert of_fit.keys() == ours.keys() and "loss" in ours
    for name, value in of_fit.items():
        assert value == pytest.approx(ours[name], rel=1e-5), name
    for one, other in zip(weights, own_weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)

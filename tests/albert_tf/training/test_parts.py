"""A batch in parts, or shared by devices, makes the update of the batch at once, whatever the loss is."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from albert_tf.training.loop.devices import Devices
from albert_tf.training.loop.training import make_steps
from tests.albert_tf.training import portable_parts
from tests.albert_tf.training.portable_parts import KINDS, check

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
    model = portable_parts.made("student", keras.optimizers.SGD(1.0))
    steps = make_steps(model, Devices(), False, 2)
    batches = steps.batches(lambda *_: portable_parts.dataset_of([portable_parts.WORDS] * 2), training=True)()
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
    run(("-c", MIRRORED), kinds)


def run(code, kinds, **variables):
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    command = [sys.executable, *code, *kinds]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("checked") == len(kinds)

"""A step of the training loop, in a graph, is that of Keras's `fit`, whatever the head, its loss and its metrics."""

import keras
import numpy as np
import pytest

from albert_tf.training.loop.devices import Devices
from albert_tf.training.loop.steps import Steps
from tests.albert_tf.training import portable_parts
from tests.albert_tf.training.portable_parts import KINDS, LENGTH, dataset_of, made

# What is traced: labels with their weights, a teacher; a graph takes 4 s or more.
IN_GRAPHS = ("distilled tags",)


def shorter(value):
    return value[..., : LENGTH - 1] if value.shape[1:] and value.shape[-1] == LENGTH else value


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind not in IN_GRAPHS)) for kind in KINDS]
)
def test_steps_in_a_graph_are_those_of_fit(kind, monkeypatch):
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

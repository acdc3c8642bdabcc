"""Halting (ACT): the formulas by hand, pondering in loss and history, a gate that opens."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import expit

from albert_tf import AlbertClassifier, AlbertPretrainer
from albert_tf.training.start import copy_weights
from tests.albert_tf.depth_cases import FEATURES, LENGTH, TEXTS, alike, small
from tests.albert_tf.test_depth import started

pytestmark = pytest.mark.usefixtures("eagerly")


def act_by_graves(states, probabilities, epsilon):
    """One token: its states after each step and its probabilities; the result, N and R."""
    total, result = 0.0, 0.0
    for step, (state, p) in enumerate(zip(states, probabilities)):
        if total + p >= 1 - epsilon or step == len(states) - 1:
            return result + (1 - total) * state, step + 1, 1 - total
        total, result = total + p, result + p * state


def act_by_tensor2tensor(states, probabilities, epsilon):
    total, result = 0.0, 0.0
    for step, (state, p) in enumerate(zip(states, probabilities)):
        ends = total + p >= 1 - epsilon or step == len(states) - 1
        weight = 1 - total if ends else p
        result = state * weight + result * (1 - weight)
        if ends:
            return result, step + 1, 1 - total
        total += p


@pytest.mark.parametrize("kind, reference", [("act", act_by_graves), ("act_t2t", act_by_tensor2tensor)])
def test_halting_is_the_formula(kind, reference):
    encoder = alike(small(num_hidden_layers=6, halting=kind, halting_threshold=0.05, ponder_cost=0.5))
    encoder.halting.gate.assign(0.7)
    encoder.halting.kernel.assign(np.random.default_rng(4).normal(size=16))
    encoder.halting.bias.assign(-0.5)
    outputs = encoder(FEATURES, output_hidden_states=True)
    states = [np.array(state) for state in outputs["hidden_states"]]
    kernel, bias = np.array(encoder.halting.kernel), float(encoder.halting.bias)
    read = states[1:] if kind == "act" else states[:-1]
    probabilities = [0.7 * expit(state @ kernel + bias) for state in read]
    counts, ponder = set(), np.zeros((3, LENGTH))
    for row in range(3):
        for token in range(LENGTH):
            own = [state[row, token] for state in states[1:]], [p[row, token] for p in probabilities]
            result, steps, remainder = reference(*own, 0.05)
            assert_allclose(outputs["sequence_output"][row, token], result, atol=1e-5)
            assert outputs["steps"][row, token] == steps
            counts.add(steps)
            ponder[row, token] = steps + remainder
    assert len(counts) > 2, "the case is too simple"
    mask = FEATURES["input_mask"]
    expected = 0.5 * np.mean((ponder * mask).sum(axis=1) / mask.sum(axis=1))
    assert_allclose(encoder.losses[0], expected, rtol=1e-5)


def test_pondering_is_in_the_loss_and_the_history():
    config = small(halting="act", ponder_cost=0.5)
    plain, model = (AlbertPretrainer(started(one)) for one in (small(), config))
    copy_weights(plain, model)
    for one in (plain, model):
        one.compile(keras.optimizers.SGD(0.1))
    batch = {"x": FEATURES, "batch_size": 3, "verbose": 0}
    losses = [one.evaluate(**batch, return_dict=True) for one in (plain, model)]
    # All gates are closed: four steps and a remainder of one.
    assert losses[1]["ponder"] == 5 and losses[1]["halting_steps"] == 4
    assert_allclose(losses[1]["loss"] - losses[0]["loss"], 0.5 * 5, rtol=1e-5)
    history = model.fit(**batch, epochs=3).history
    assert history["ponder"][-1] < history["ponder"][0] and float(model.encoder.halting.gate) > 0
    classifier = AlbertClassifier(model.encoder, 2)
    classifier.compile(keras.optimizers.SGD(0.0))
    logs = classifier.fit(TEXTS, np.array([0, 1, 1]), verbose=0, batch_size=3).history
    assert logs["loss"][0] > 0.5 * logs["ponder"][0] > 0

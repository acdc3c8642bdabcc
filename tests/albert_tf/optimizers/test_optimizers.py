"""The update rules, against numpy written from the paper's formulas, and the curve at its corners."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf.optimizers import Lamb, WarmupPolynomialDecay, create_optimizer


def variable_at(path, start):
    layer, name = path.split("/")
    with keras.name_scope(layer):
        return keras.Variable(start, name=name)


def test_lamb_moves_a_zero_variable_and_survives_a_zero_gradient():
    variable = keras.Variable(np.zeros(4, "float32"), name="kernel")
    optimizer = Lamb(learning_rate=0.1)
    optimizer.apply([keras.ops.zeros(4)], [variable])
    assert np.all(np.array(variable) == 0)
    optimizer.apply([keras.ops.ones(4)], [variable])
    moved = np.array(variable)
    assert np.all(np.isfinite(moved)) and np.all(moved < 0)


def test_lamb_adapts_excluded_variables_when_told_to():
    start = np.full(4, 2.0, "float32")
    variable = keras.Variable(start, name="bias")
    optimizer = Lamb(learning_rate=0.01, exclude_from_layer_adaptation=())
    optimizer.apply([keras.ops.ones(4)], [variable])
    # Unit trust ratio would move each weight by about rate * 0.1 / sqrt(0.001); adapted, the step has norm rate * |w|.
    moved = np.linalg.norm(np.array(variable) - start)
    assert_allclose(moved, 0.01 * np.linalg.norm(start), rtol=1e-4)


def test_lamb_moves_what_begins_at_zero_over_depth_like_any_matrix_step_by_step():
    start = np.stack([np.zeros((8, 4)), np.full((8, 4), 3.0)]).astype("float32")
    stack = variable_at("depth_lora_query/b", start)
    optimizer = Lamb(learning_rate=0.01, weight_decay=0.0)
    optimizer.apply([np.random.default_rng(0).normal(size=(2, 8, 4)).astype("float32")], [stack])
    moved = np.sqrt(np.mean(np.square(np.array(stack) - start), axis=(1, 2)))
    assert_allclose(moved, [0.01 * 0.02, 0.01 * 3.0], rtol=1e-4)


ADAPTED = "lora_query/a halting/kernel"


@pytest.mark.parametrize("path", f"{ADAPTED} signal/table halting/bias halting/gate injection/gate".split())
def test_which_weights_over_depth_are_adapted(path):
    variable = variable_at(f"depth_{path}", np.zeros(4, "float32"))
    Lamb(learning_rate=0.01, weight_decay=0.0).apply([keras.ops.ones(4)], [variable])
    # As any bias, by Adam's first step, 0.1 / sqrt(0.001); or by that of a matrix of standard deviation 0.02.
    step = 0.02 if path in ADAPTED.split() else 0.1 / np.sqrt(0.001)
    assert_allclose(variable, -0.01 * step, rtol=1e-3)


@pytest.mark.parametrize("rate", [0.1, WarmupPolynomialDecay(0.1, num_train_steps=3, num_warmup_steps=2)])
def test_gradient_accumulation_equals_the_mean_gradient(rate):
    """The schedule goes by updates, not by what each of them has accumulated."""
    gradients = np.random.default_rng(1).normal(size=(4, 3)).astype("float32")
    accumulating, plain = (keras.Variable(np.ones(3, "float32"), name=name) for name in "ab")
    first, second = Lamb(learning_rate=rate, gradient_accumulation_steps=2), Lamb(learning_rate=rate)
    for number, gradient in enumerate(gradients):
        first.apply([gradient], [accumulating])
        if number % 2:
            second.apply([gradients[number - 1 : number + 1].mean(axis=0)], [plain])
    assert_allclose(accumulating, plain, rtol=1e-5, atol=1e-7)


def test_schedule_at_its_corners():
    schedule = WarmupPolynomialDecay(1.0, num_train_steps=100, num_warmup_steps=10)
    values = {step: float(schedule(step - 1)) for step in (1, 5, 9, 10, 50, 100, 200)}
    expected = {1: 0.1, 5: 0.5, 9: 0.9, 10: 0.9, 50: 0.5, 100: 0.0, 200: 0.0}
    assert values == pytest.approx(expected, abs=1e-6)
    assert float(WarmupPolynomialDecay(2.0, 10, 0, poly_power=2.0)(4)) == pytest.approx(0.5)


@pytest.mark.parametrize("warmup", [-1, 10, 11])
def test_schedule_refuses_a_warmup_outside_the_training(warmup):
    with pytest.raises(ValueError, match=f"num_warmup_steps={warmup}"):
        WarmupPolynomialDecay(1.0, num_train_steps=10, num_warmup_steps=warmup)


@pytest.mark.parametrize("name", ["lamb", "adamw", "muon"])
def test_optimizer_survives_serialisation(name):
    optimizer = create_optimizer(name, 0.1, 100, 10, weight_decay=0.2, exclude_from_weight_decay=["x"])
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(copy) is type(optimizer)
    assert copy.get_config() == optimizer.get_config()
    assert copy.weight_decay == 0.2 and copy.global_clipnorm == 1.0


@pytest.mark.parametrize("name", ["lamb", "adamw", "muon"])
def test_keras_value_for_no_weight_decay_decays_nothing(name):
    kernel = keras.Variable(np.eye(2, dtype="float32"), name="kernel")
    create_optimizer(name, 0.1, 100, 0, weight_decay=None).apply([keras.ops.zeros((2, 2))], [kernel])
    assert_array_equal(kernel, np.eye(2))


def test_unknown_optimizer_is_named():
    with pytest.raises(ValueError, match="unknown optimizer 'lamp'"):
        create_optimizer("lamp", 0.1, 100, 10)

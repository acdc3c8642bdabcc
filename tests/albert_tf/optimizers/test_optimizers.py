"""The update rules, against numpy written from the paper's formulas and Keras's Muon, and the curve at its corners."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertPretrainer
from albert_tf.optimizers import AdamWeightDecay, Lamb, Muon, WarmupPolynomialDecay, create_optimizer
from tests.albert_tf.tiny import small


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
    for step, value in {1: 0.1, 5: 0.5, 9: 0.9, 10: 0.9, 50: 0.5, 100: 0.0, 200: 0.0}.items():
        assert float(schedule(step - 1)) == pytest.approx(value, abs=1e-6)
    assert float(WarmupPolynomialDecay(2.0, 10, 0, poly_power=2.0)(4)) == pytest.approx(0.5)


@pytest.mark.parametrize("warmup", [-1, 10, 11])
def test_schedule_refuses_a_warmup_outside_the_training(warmup):
    with pytest.raises(ValueError, match=f"num_warmup_steps={warmup}"):
        WarmupPolynomialDecay(1.0, num_train_steps=10, num_warmup_steps=warmup)


each = pytest.mark.parametrize("name", ["lamb", "adamw", "muon"])


@each
def test_optimizer_survives_serialisation(name):
    optimizer = create_optimizer(name, 0.1, 100, 10, weight_decay=0.2, exclude_from_weight_decay=["x"])
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(copy) is type(optimizer)
    assert copy.get_config() == optimizer.get_config()
    assert copy.weight_decay == 0.2 and copy.global_clipnorm == 1.0


@each
def test_keras_value_for_no_weight_decay_decays_nothing(name):
    kernel = keras.Variable(np.eye(2, dtype="float32"), name="kernel")
    create_optimizer(name, 0.1, 100, 0, weight_decay=None).apply([keras.ops.zeros((2, 2))], [kernel])
    assert_array_equal(kernel, np.eye(2))


def test_unknown_optimizer_is_named():
    with pytest.raises(ValueError, match="unknown optimizer 'lamp'"):
        create_optimizer("lamp", 0.1, 100, 10)


def test_the_norm_is_that_of_summed_rows():
    table = keras.Variable(np.zeros((2, 1), "float32"), name="table")
    twice_the_first_row = tf.IndexedSlices(tf.constant([[3.0], [4.0]]), tf.constant([0, 0]), tf.constant([2, 1]))
    optimizer = AdamWeightDecay(learning_rate=1.0, global_clipnorm=1.0)
    optimizer.apply([twice_the_first_row], [table])
    assert optimizer.figures()["gradient_norm"] == 7.0
    assert_allclose(optimizer._momentums[0][0], [0.1], rtol=1e-6)


@pytest.mark.parametrize("in_graph", [False, True])
def test_figures_are_those_of_the_last_update(in_graph):
    variables = [keras.Variable(np.full(4, 3.0, "float32"), name=name) for name in ("kernel", "bias")]
    optimizer = Lamb(learning_rate=keras.optimizers.schedules.PolynomialDecay(0.1, 10, 0.0), weight_decay=0.0)
    optimizer.build(variables)

    def apply(gradient):
        optimizer.apply([gradient] * 2, variables)

    apply = tf.function(apply, autograph=False) if in_graph else apply
    for gradient in (1.0, 2.0):
        apply(keras.ops.full((4,), gradient))
    # Without decay the second update is (0.9 * 0.1 + 0.2) / sqrt(0.001 * 0.999 + 0.004) in each of four elements.
    ratio = (3.0 - 0.1 * 3.0) / (0.29 / np.sqrt(0.004999))
    assert optimizer.figures() == pytest.approx(
        {"learning_rate": 0.09, "gradient_norm": np.sqrt(8 * 2.0**2)}
        | {f"trust_ratio_{name}": ratio for name in ("min", "median", "max")},
        rel=1e-3,
    )
    store: dict = {}
    optimizer.save_own_variables(store)
    # Iteration, skipped, and two moments of each variable: no figure is in a file.
    assert len(store) == 6


def weight(name="kernel"):
    return keras.Variable(np.arange(12, dtype="float32").reshape(4, 3), name=name)


@pytest.mark.parametrize("name, decay", [("kernel", 0.1), ("word_embeddings", 0.1), ("content_bias", 0.0)])
def test_it_moves_weights_as_keras_does_and_decays_no_bias(name, decay):
    ours, theirs = weight(name), weight(name)
    one = Muon(0.01, weight_decay=0.1, beta_2=0.98)
    other = keras.optimizers.Muon(
        0.01, weight_decay=decay, adam_weight_decay=decay, adam_beta_2=0.98, epsilon=1e-6, exclude_layers=["bias"]
    )
    for gradient in np.random.default_rng(0).normal(size=(4, 4, 3)).astype("float32"):
        one.apply([gradient], [ours])
        other.apply([gradient], [theirs])
    assert_allclose(ours, theirs, rtol=1e-5)


def test_every_variable_of_a_model_moves():
    variables = AlbertPretrainer(small(depth_lora_rank=2)).trainable_variables
    before, random = [np.array(variable) for variable in variables], np.random.default_rng(0)
    Muon(0.1).apply([random.normal(size=variable.shape).astype("float32") for variable in variables], variables)
    assert all((np.array(variable) != value).any() for variable, value in zip(variables, before))


@pytest.mark.parametrize("optimizer_class", [Muon, Lamb, AdamWeightDecay])
@pytest.mark.parametrize("name", ["kernel", "word_embeddings"])
def test_gradients_that_are_not_finite_change_nothing(optimizer_class, name):
    variable, optimizer = weight(name), optimizer_class(learning_rate=0.1)
    optimizer.apply([keras.ops.ones((4, 3))], [variable])
    state = [variable, *(one for one in optimizer.variables if one.shape == (4, 3))]
    before = [np.array(value) for value in state]
    optimizer.apply([keras.ops.full((4, 3), float("nan"))], [variable])
    for value, one in zip(before, state, strict=True):
        assert_array_equal(one, value)
    assert len(state) > 1 and (int(optimizer.skipped), optimizer.updates) == (1, 2)

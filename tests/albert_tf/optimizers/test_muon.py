"""Muon's rule against NumPy, and which variable of a model goes by which rule."""

import keras
import numpy as np
import pytest
from keras import ops

from albert_tf import AlbertConfig, AlbertPretrainer, XlnetPretrainer
from albert_tf.optimizers import AdamWeightDecay, Lamb, Muon


def orthogonal(matrix):
    """The published polynomial on the singular values, which leaves the singular vectors as they are."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    values = values / np.linalg.norm(values)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return left * values @ right


def expected(start, gradients, rate, decay):
    weights, momentum = start, np.zeros_like(start)
    for gradient in gradients:
        momentum = 0.95 * momentum + gradient
        update = 0.2 * np.sqrt(max(weights.shape)) * orthogonal(gradient + 0.95 * momentum)
        weights = weights - rate * (update + decay * weights)
    return weights


@pytest.mark.parametrize("shape", [(5, 3), (3, 8)])
def test_a_matrix_and_each_of_a_stack_go_by_the_formula(shape):
    random = np.random.default_rng(0)
    start, *gradients = random.normal(size=(5, 2, *shape)).astype("float32")
    one, stack = keras.Variable(start[0], name="kernel"), keras.Variable(start, name="depth_lora_query_a")
    optimizer = Muon(learning_rate=0.01, weight_decay=0.1)
    for gradient in gradients:
        optimizer.apply([gradient[0], gradient], [one, stack])
    for found, number in ((one, 0), (stack[0], 0), (stack[1], 1)):
        wanted = expected(start[number], [gradient[number] for gradient in gradients], 0.01, 0.1)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_all_else_goes_by_adam_at_its_ratio():
    random = np.random.default_rng(0)
    start, gradient = random.normal(size=(2, 6, 3)).astype("float32")
    ours, theirs = (keras.Variable(start, name="word_embeddings") for _ in range(2))
    Muon(0.01, adam_ratio=0.5).apply([gradient], [ours])
    AdamWeightDecay(0.005).apply([gradient], [theirs])
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


SIZES = dict(
    vocab_size=30, embedding_size=6, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12
)
# What of two axes and more is no matrix.
ADAM = {
    *("word_embeddings", "token_type_embeddings", "position_embeddings", "segment_embeddings"),
    *("pair_head/kernel", "content_bias", "position_bias", "segment_bias"),
    *("depth_signal/table", *(f"depth_connections/{name}" for name in ("kernel", "scale", "bias", "signal"))),
}


@pytest.mark.parametrize(
    "model",
    [
        lambda: AlbertPretrainer(AlbertConfig(**SIZES, depth_lora_rank=2, step_signal="learned")),
        lambda: XlnetPretrainer(AlbertConfig(**SIZES, position_type="relative")),
        lambda: AlbertPretrainer(AlbertConfig(**SIZES, sharing="none")),
    ],
)
def test_every_variable_moves_by_a_stated_rule(model):
    variables = model().trainable_variables
    before = [np.array(variable) for variable in variables]
    optimizer = Muon(learning_rate=0.1)
    random = np.random.default_rng(0)
    optimizer.apply([random.normal(size=v.shape).astype("float32") for v in variables], variables)
    assert len(optimizer.rules()) == len(variables)
    for variable, value in zip(variables, before):
        assert (np.array(variable) != value).any(), variable.path
        is_adam = len(variable.shape) < 2 or any(variable.path.endswith(name) for name in ADAM)
        assert optimizer.rules()[variable.path] == ("adam" if is_adam else "muon"), variable.path


@pytest.mark.parametrize("optimizer_class", [Muon, Lamb, AdamWeightDecay])
def test_gradients_that_are_not_finite_change_nothing(optimizer_class):
    kernel = keras.Variable(np.eye(3, dtype="float32"), name="kernel")
    optimizer = optimizer_class(learning_rate=0.1)
    optimizer.apply([ops.ones((3, 3))], [kernel])
    state = (kernel, optimizer._momentums[0], *getattr(optimizer, "_velocities", [])[:1])
    before = [np.array(value) for value in state]
    optimizer.apply([ops.full((3, 3), float("nan"))], [kernel])
    for value, variable in zip(before, state):
        np.testing.assert_array_equal(variable, value)
    assert (int(optimizer.skipped), optimizer.updates) == (1, 2)


def test_loaded_it_goes_on_to_the_bit():
    start, *gradients = np.random.default_rng(0).normal(size=(5, 4, 3)).astype("float32")
    variable, optimizer = keras.Variable(start, name="kernel"), Muon(0.01, momentum=0.9, global_clipnorm=1.0)
    for gradient in gradients[:2]:
        optimizer.apply([gradient], [variable])
    store: dict = {}
    optimizer.save_own_variables(store)
    again, copy = keras.Variable(variable, name="kernel"), Muon.from_config(optimizer.get_config())
    copy.build([again])
    copy.load_own_variables(store)
    for one, of_variable in ((optimizer, variable), (copy, again)):
        for gradient in gradients[2:]:
            one.apply([gradient], [of_variable])
    np.testing.assert_array_equal(again, variable)

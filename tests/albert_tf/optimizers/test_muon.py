"""What Keras's Muon does here, and what it does not do by itself."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf import AlbertConfig, AlbertPretrainer
from albert_tf.optimizers import AdamWeightDecay, Lamb, Muon


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
    sizes = dict(vocab_size=30, embedding_size=6, hidden_size=8, num_attention_heads=2, intermediate_size=12)
    variables = AlbertPretrainer(AlbertConfig(**sizes, num_hidden_layers=2, depth_lora_rank=2)).trainable_variables
    before, random = [np.array(variable) for variable in variables], np.random.default_rng(0)
    Muon(0.1).apply([random.normal(size=variable.shape).astype("float32") for variable in variables], variables)
    assert all((np.array(variable) != value).any() for variable, value in zip(variables, before))


@pytest.mark.parametrize("optimizer_class", [Muon, Lamb, AdamWeightDecay])
@pytest.mark.parametrize("name", ["kernel", "word_embeddings"])
def test_gradients_that_are_not_finite_change_nothing(optimizer_class, name):
    variable, optimizer = weight(name), optimizer_class(learning_rate=0.1)
    optimizer.apply([ops.ones((4, 3))], [variable])
    state = [variable, *(one for one in optimizer.variables if one.shape == (4, 3))]
    before = [np.array(value) for value in state]
    optimizer.apply([ops.full((4, 3), float("nan"))], [variable])
    for value, one in zip(before, state, strict=True):
        assert_array_equal(one, value)
    assert len(state) > 1 and (int(optimizer.skipped), optimizer.updates) == (1, 2)


def test_loaded_it_goes_on_to_the_bit():
    gradients = np.random.default_rng(0).normal(size=(4, 4, 3)).astype("float32")
    variable, optimizer = weight(), Muon(0.01, momentum=0.9, global_clipnorm=1.0)
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
    assert_array_equal(again, variable)

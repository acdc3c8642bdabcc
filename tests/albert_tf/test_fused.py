"""Fused kernels give what the plain functions give, forward and backward, and only where training asks for them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from albert_tf import AlbertEncoder, AlbertPretrainer
from albert_tf.base import layers
from albert_tf.base.layers import LayerNorm, gelu_erf, gelu_tanh
from tests.albert_tf.depth_cases import FEATURES, small


@pytest.fixture(autouse=True)
def any_size(monkeypatch):
    monkeypatch.setattr(layers, "LEAST_ELEMENTS", 1)


def value_and_gradients(function, *inputs):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = function(*inputs)
    return [output, *tape.gradient(output, inputs, tf.cast(tf.ones_like(output) * 0.5, output.dtype))]


LAYER = LayerNorm(dtype="float32")
LAYER.build((None, 6))


def normalized(inputs, residual):
    return LAYER.call(inputs, residual)


@pytest.mark.parametrize("function, count", [(gelu_tanh, 1), (gelu_erf, 1), (normalized, 2)])
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("bfloat16", 2e-2)])
def test_same_values_and_gradients(function, count, dtype, tolerance):
    random = np.random.default_rng(0)
    inputs = [tf.cast(random.normal(size=(5, 6)), dtype) for _ in range(count)]
    plain = value_and_gradients(function, *inputs)
    with layers.fusing():
        found = tf.function(lambda *arrays: value_and_gradients(function, *arrays), autograph=False)(*inputs)
    for one, other in zip(plain, found, strict=True):
        assert_allclose(tf.cast(one, "float32"), tf.cast(other, "float32"), atol=tolerance, rtol=tolerance)


def kernels(concrete):
    """Functions of a graph that only XLA may run."""
    functions = concrete.graph.as_graph_def().library.function
    return sum(function.attr["_XlaMustCompile"].b for function in functions)


@pytest.mark.parametrize("walk", ["unrolled", "loop", "recompute"])
@pytest.mark.few(1)
def test_a_step_with_them_equals_one_without_and_no_other_graph_has_them(walk):
    keras.utils.set_random_seed(0)
    model = AlbertPretrainer(AlbertEncoder(small(num_hidden_layers=1), walk=walk))
    features = {name: tf.constant(value) for name, value in FEATURES.items()}

    def gradients():
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x=features, y_pred=model(features, training=True))
        return [tf.convert_to_tensor(value) for value in tape.gradient(loss, model.trainable_variables)]

    plain = tf.function(gradients, autograph=False).get_concrete_function()
    with layers.fusing():
        fast = tf.function(gradients, autograph=False).get_concrete_function()
    assert kernels(fast) > 0 and kernels(plain) == 0
    for one, other in zip(plain(), fast(), strict=True):
        assert_allclose(one, other, atol=1e-6, rtol=1e-4)

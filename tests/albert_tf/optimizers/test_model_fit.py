"""The optimizers under plain `model.compile` and `model.fit`, on a model with embeddings, TensorFlow and JAX."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from albert_tf.optimizers import AdamWeightDecay, Lamb


def test_the_norm_is_that_of_summed_rows():
    table = keras.Variable(np.zeros((2, 1), "float32"), name="table")
    twice_the_first_row = tf.IndexedSlices(tf.constant([[3.0], [4.0]]), tf.constant([0, 0]), tf.constant([2, 1]))
    optimizer = AdamWeightDecay(learning_rate=1.0, global_clipnorm=1.0)
    optimizer.apply([twice_the_first_row], [table])
    assert optimizer.figures()["gradient_norm"] == 7.0
    np.testing.assert_allclose(optimizer._momentums[0][0], [0.1], rtol=1e-6)


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

"""Whatever changes what layers compute after a function was traced, every answer is that of the model as it is now."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose

from albert_tf.base.model import traced_functions
from tests.albert_tf.depth_cases import filled
from tests.albert_tf.tiny import KINDS, batch, small
from tests.refusals import refused

CONFIG = small(num_hidden_layers=1)
X = batch()


def made(kind="classifier"):
    return filled(KINDS[kind](CONFIG))


CHANGES = {
    "adapters": lambda model: model.encoder.enable_lora(2),
    "a frozen layer": lambda model: setattr(model.encoder.embeddings, "trainable", False),
    "a frozen weight": lambda model: setattr(model.encoder.embeddings.word_embeddings, "trainable", False),
    "a dtype": lambda model: setattr(model.head, "dtype_policy", "float64"),
    "a rate": lambda model: setattr(model.dropout, "rate", 0.5),
    "a function": lambda model: setattr(model.head, "activation", keras.activations.relu),
    "a configuration": lambda model: setattr(model.encoder, "config", CONFIG.replace(hidden_act="relu")),
}


@pytest.mark.parametrize("what", CHANGES)
def test_each_change_makes_functions_anew(what):
    model = made()
    model(X)
    traced_functions(model)["one"], model.predict_function = len, len
    CHANGES[what](model)
    assert not traced_functions(model) and model.predict_function is None


def test_fit_trains_what_is_to_train_now():
    model, labels = made(), np.array([0, 1, 2, 0])
    model.compile(keras.optimizers.Adam(0.05))
    model.fit(X, labels, verbose=0)
    model.encoder.trainable = False
    before = model.encoder.get_weights()
    head = np.array(model.head.kernel)
    model.fit(X, labels, verbose=0)
    for then, now in zip(before, model.encoder.get_weights(), strict=True):
        assert_allclose(now, then, atol=0)
    assert np.abs(np.array(model.head.kernel) - head).max() > 1e-3
    model.encoder.enable_lora(2)
    with refused(r"other weights train than at the last compile; call compile\(\)"):
        model.fit(X, labels, verbose=0)
    assert_allclose(model.predict(X, verbose=0), model(X), atol=1e-5)
    model.encoder.merge_lora()
    assert_allclose(model.predict(X, verbose=0), model(X), atol=1e-5)


SHAPES = {
    "classifier": ([8, 1, 6], [8, 6, 1], [6]),
    "tagger": ([8, 1, 6], [8, 6, 1], [6]),
    "choices": ([8, 6], [8, 1, 2, 6]),
}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.usefixtures("eagerly")
def test_ids_of_other_axes_are_refused(kind):
    model = made(kind)
    for shape in SHAPES[kind]:
        for call in (model, lambda ids: model.predict(ids, verbose=0)):
            with refused(r"input_ids: the shape is \(.*give \[batch, (choices, )?sequence\]"):
                call(np.ones(shape, "int32"))
    ids = np.ones([8, 2, 6] if kind == "choices" else [8, 6], "int32")
    with refused(r"input_mask: the shape is \(8,.* 1\), that of input_ids \(8,"):
        model({"input_ids": ids, "input_mask": ids[..., :1]})

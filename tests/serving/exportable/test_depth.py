"""Exports of extensions over depth pass their check, by ids and by text; 8-bit ones beside exact products too."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from serving.check import different_lengths, expected_answers

EXTENSIONS = {
    "step signal": {"step_signal": "sinusoid"},
    "hyper-connections": {"hyper_connections": 2},
    "low rank": {"depth_lora_rank": 2},
    "act": {"halting": "act"},
    "act_t2t": {"halting": "act_t2t"},
}


def extended(make_model, changes):
    model = make_model("classifier", gate_init=0.5, **changes)
    for variable in model.encoder.depth_variables.values():
        variable.assign(variable + keras.random.normal(variable.shape, stddev=0.05, seed=1))
    return model


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("changes", EXTENSIONS.values(), ids=EXTENSIONS.keys())
def test_extended_models_are_answered_as_by_keras(make_model, serve, changes):
    model, served = serve(extended(make_model, changes))
    inputs = different_lengths(served.exportable)
    expected = expected_answers(model, inputs)["logits"]
    np.testing.assert_allclose(served("serving_default", **inputs)["logits"], expected, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("changes", EXTENSIONS.values(), ids=EXTENSIONS.keys())
def test_exports_pass_their_check(make_model, export_model, changes):
    export_model(extended(make_model, changes), inputs="text", compute="int8", check=True, warm_up_lengths="")


@pytest.mark.usefixtures("eagerly")
def test_answers_of_what_halts_give_the_steps_of_every_token(make_model, serve):
    model, served = serve(extended(make_model, {"halting": "act", "num_hidden_layers": 4}))
    ids, lengths = tf.constant([[2, 8, 9, 3], [2, 11, 3, 0]]), tf.constant([4, 3])
    features = {"input_ids": ids, "input_mask": tf.sequence_mask(lengths, 4, tf.int32)}
    expected, found = model.encoder(features)["steps"], served("serving_default", input_ids=ids, lengths=lengths)
    assert found["steps"].tolist() == (expected * features["input_mask"]).numpy().tolist()
    assert found["logits"] == pytest.approx(model(features).numpy(), abs=1e-5)

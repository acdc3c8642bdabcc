"""What goes by depth: extensions over it, and early exit, whose threshold is an input, each row's own."""

import keras
import numpy as np
import pytest

from serving.check import different_lengths, expected_answers
from tests.serving.conftest import assert_close

IDS = np.array([[2, 8, 9, 10, 3], [2, 11, 3, 0, 0], [2, 9, 9, 3, 0]], np.int32)
MASK = 1 * (IDS > 0)
FEATURES, ROWS = {"input_ids": IDS, "input_mask": MASK}, {"input_ids": IDS, "lengths": MASK.sum(axis=1)}
EXTENSIONS = [{"step_signal": "sinusoid"}, {"depth_lora_rank": 2}, {"halting": "act_t2t"},
              {"halting": "act", "num_hidden_layers": 4}]  # fmt: skip


@pytest.fixture(params=EXTENSIONS, ids=lambda changes: next(iter(changes.values())))
def extended(request, make_model):
    model = make_model("classifier", gate_init=0.5, **request.param)
    for variable in model.encoder.depth_variables.values():
        variable.assign(variable + keras.random.normal(variable.shape, stddev=0.05, seed=1))
    return model


@pytest.mark.usefixtures("eagerly")
def test_extended_models_are_answered_as_by_keras_with_the_steps_of_every_token(extended, serve):
    model, served = serve(extended)
    inputs = different_lengths(served.exportable)
    assert_close(served(**inputs), expected_answers(model, inputs))
    answers = served(**ROWS)
    assert ("steps" in answers) == (model.encoder.config.halting != "none")
    if "steps" in answers:
        assert answers["steps"].tolist() == (model.encoder(FEATURES)["steps"] * MASK).numpy().tolist()


# A probability is never above 1 and always above -1; a number never moves by less than nothing.
NEVER, AT_ONCE = [2.0, -1.0, 2.0], [-1.0, 1e9, -1.0]
EXITS = [
    ("exiting classifier", "confidence", NEVER),
    ("exiting regressor", "confidence", AT_ONCE),
    ("exiting token classifier", "confidence", NEVER),
    *((head, "movement", [0.0, 9.0, 0.0]) for head in ("classifier", "embedder", "encoder", "pretrainer")),
]


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("head, rule, thresholds", EXITS)
def test_rows_that_are_never_sure_answer_as_the_model_and_the_others_as_their_step(serve, head, rule, thresholds):
    model, served = serve(head, exit_rule=rule)
    # The gate is stored where it is asked alone.
    plain, answers = served(**ROWS), served("early_exit", **ROWS, threshold=thresholds)
    first = 2 if head == "exiting regressor" else 1
    assert answers["steps"].tolist() == [2, first, 2] and answers.keys() == plain.keys() | {"steps"}
    assert_close(*({name: one[name][::2] for name in plain} for one in (answers, plain)))
    if head in ("encoder", "pretrainer"):
        assert all(np.abs(answers[name][1] - values[1]).max() > 1e-3 for name, values in plain.items())
        return
    by = [] if head == "embedder" else [rule]
    for name, values in model.answer_early(FEATURES, np.array(thresholds, "float32"), *by).items():
        found = answers["value" if head == "exiting regressor" and name == "logits" else name]
        values = values * MASK[..., None] if found.ndim == 3 else values
        assert_close(found, np.reshape(values, found.shape))

"""What goes by depth: extensions over it, and early exit, whose threshold is an input, each row's own."""

import keras
import numpy as np
import pytest

from serving.check import different_lengths, expected_answers
from tests.serving.conftest import assert_close

IDS = np.array([[2, 8, 9, 10, 3], [2, 11, 3, 0, 0], [2, 9, 9, 3, 0]], np.int32)
MASK = 1 * (IDS > 0)
FEATURES, ROWS = {"input_ids": IDS, "input_mask": MASK}, {"input_ids": IDS, "lengths": MASK.sum(axis=1)}
EXTENSIONS = [{"step_signal": "sinusoid"}, {"hyper_connections": 2}, {"depth_lora_rank": 2}, {"halting": "act_t2t"},
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


@pytest.mark.slow
def test_exports_pass_their_check(extended, export_model):
    """In 8 bits, next to exact products too."""
    export_model(extended, inputs="text", compute="int8", check=True, warm_up_lengths="")


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    ("head", "name"),
    [("exiting classifier", "logits"), ("exiting regressor", "value"), ("exiting token classifier", "logits")],
)
def test_rows_that_never_are_sure_answer_as_the_model_and_the_others_as_their_step(serve, head, name):
    model, served = serve(head)
    every_step = [keras.ops.convert_to_numpy(logits) for logits in model.exit_logits(FEATURES)]
    plain = served(**ROWS)
    # A probability is never above 1, a number never moves by less than nothing; it is always above -1.
    never, at_once, first = (-1, 1e9, 2) if head == "exiting regressor" else (2, -1, 1)
    answers = served("early_exit", **ROWS, threshold=[never, at_once, never])
    assert answers["steps"].tolist() == [2, first, 2] and answers.keys() == plain.keys() | {"steps"}
    for row, step in enumerate(answers["steps"]):
        expected = every_step[step - 1][row]
        expected = expected * MASK[row][:, None] if expected.ndim == 2 else expected
        assert_close(answers[name][row], expected.reshape(answers[name][row].shape))
    assert_close(answers[name][[0, 2]], plain[name][[0, 2]])


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(
    ("head", "rule", "thresholds"),
    [("learned classifier", "learned", [0.0, 0.5, 1.0]), ("classifier", "movement", [9.0, 0.9, 0.0])],
)
def test_rules_that_read_states_answer_as_keras(serve, head, rule, thresholds):
    model, served = serve(head, exit_rule=rule)
    # The gate is stored where it is asked alone.
    assert (served.exportable.encoder.exit_gate is not None) == (rule == "learned")
    assert serve(head)[1].exportable.encoder.exit_gate is None
    expected = model.answer_early(FEATURES, np.array(thresholds, "float32"), rule)
    answers = served("early_exit", **ROWS, threshold=thresholds)
    assert answers["steps"].tolist() == expected["steps"].numpy().tolist()
    assert answers["steps"][[0, 2]].tolist() == [1, 2]
    assert_close(answers["logits"], expected["logits"])


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("head", ["embedder", "encoder", "pretrainer"])
def test_vectors_leave_once_their_tokens_move_little(serve, head):
    model, served = serve(head, exit_rule="movement")
    plain = served(**ROWS)
    answers = served("early_exit", **ROWS, threshold=[0.0, 9.0, 0.0])
    assert answers["steps"].tolist() == [2, 1, 2] and answers.keys() == plain.keys() | {"steps"}
    for name, values in plain.items():
        assert_close(answers[name][[0, 2]], values[[0, 2]])
        assert np.abs(answers[name][1] - values[1]).max() > 1e-3
    if head == "embedder":
        for name, values in model.answer_early(FEATURES, [0.0, 9.0, 0.0]).items():
            assert_close(answers[name], values)

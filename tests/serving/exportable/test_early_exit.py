"""The threshold is an input: one export serves every trade-off, each row its own."""

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("eagerly")
FLOAT_OUTPUTS = {"exiting classifier": "logits", "exiting regressor": "value", "exiting token classifier": "logits"}
IDS = np.array([[2, 8, 9, 10, 3], [2, 11, 3, 0, 0], [2, 9, 9, 3, 0]], np.int32)
LENGTHS = np.array([5, 3, 4], np.int32)
MASK = (np.arange(5) < LENGTHS[:, None]).astype(np.int32)


@pytest.mark.parametrize("head", FLOAT_OUTPUTS)
def test_rows_that_never_are_sure_answer_as_the_model_and_the_others_as_their_step(serve, head):
    model, served = serve(head)
    every_step = [
        keras.ops.convert_to_numpy(logits) for logits in model.exit_logits({"input_ids": IDS, "input_mask": MASK})
    ]
    plain = served("serving_default", input_ids=IDS, lengths=LENGTHS)
    # A probability is never above 1, a number never moves by less than nothing; it is always above -1.
    never, at_once = (-1, 1e9) if head == "exiting regressor" else (2, -1)
    answers = served("early_exit", input_ids=IDS, lengths=LENGTHS, threshold=[never, at_once, never])
    first = 2 if head == "exiting regressor" else 1
    assert answers["steps"].tolist() == [2, first, 2]
    name = FLOAT_OUTPUTS[head]
    assert answers.keys() == plain.keys() | {"steps"}
    for row, step in enumerate(answers["steps"]):
        expected = every_step[step - 1][row]
        expected = expected[0] if head == "exiting regressor" else expected
        expected = expected * MASK[row][:, None] if expected.ndim == 2 else expected
        np.testing.assert_allclose(answers[name][row], expected, atol=2e-5)
    np.testing.assert_allclose(answers[name][[0, 2]], plain[name][[0, 2]], atol=2e-5)


def test_texts_exit_early_too(serve):
    texts = {"text": ["the cat sat", "paris"]}
    for head in ("exiting classifier", "exiting token classifier"):
        _, served = serve(head, text=True)
        plain, answers = served("serving_default", **texts), served("early_exit", **texts, threshold=[2.0, 2.0])
        assert answers.keys() == plain.keys() | {"steps"} and answers["steps"].tolist() == [2, 2]
        np.testing.assert_allclose(answers["logits"], plain["logits"], atol=2e-5)


@pytest.mark.parametrize(
    ("head", "rule", "thresholds"),
    [("learned classifier", "learned", [0.0, 0.5, 1.0]), ("classifier", "movement", [9.0, 0.9, 0.0])],
)
def test_rules_that_read_states_answer_as_keras(serve, head, rule, thresholds):
    model, served = serve(head, exit_rule=rule)
    # The gate is stored where it is asked alone.
    assert (served.exportable.encoder.exit_gate is not None) == (rule == "learned")
    assert serve(head)[1].exportable.encoder.exit_gate is None
    expected = model.answer_early({"input_ids": IDS, "input_mask": MASK}, np.array(thresholds, "float32"), rule)
    answers = served("early_exit", input_ids=IDS, lengths=LENGTHS, threshold=thresholds)
    steps = keras.ops.convert_to_numpy(expected["steps"]).tolist()
    assert answers["steps"].tolist() == steps and steps[0] == 1 and steps[2] == 2
    np.testing.assert_allclose(answers["logits"], expected["logits"], atol=2e-5)


@pytest.mark.parametrize("head", ["embedder", "encoder", "pretrainer"])
def test_vectors_leave_once_their_tokens_move_little(serve, head):
    model, served = serve(head, exit_rule="movement")
    plain = served("serving_default", input_ids=IDS, lengths=LENGTHS)
    answers = served("early_exit", input_ids=IDS, lengths=LENGTHS, threshold=[0.0, 9.0, 0.0])
    assert answers["steps"].tolist() == [2, 1, 2] and answers.keys() == plain.keys() | {"steps"}
    for name, values in plain.items():
        np.testing.assert_allclose(answers[name][[0, 2]], values[[0, 2]], atol=2e-5, err_msg=name)
        assert np.abs(answers[name][1] - values[1]).max() > 1e-3
    if head == "embedder":
        for name, values in model.answer_early({"input_ids": IDS, "input_mask": MASK}, [0.0, 9.0, 0.0]).items():
            np.testing.assert_allclose(answers[name], values, atol=2e-5)

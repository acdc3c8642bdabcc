"""The threshold is an input: one export serves every trade-off, each row its own."""

import keras
import numpy as np
import pytest

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
    _, served = serve("exiting classifier", text=True)
    texts = ["the cat sat", "paris"]
    answers = served("early_exit", text=texts, threshold=[2.0, 2.0])
    np.testing.assert_allclose(answers["logits"], served("serving_default", text=texts)["logits"], atol=2e-5)
    assert answers["steps"].tolist() == [2, 2]


def test_models_without_exits_have_no_such_signature(serve):
    assert "early_exit" not in serve("classifier")[1].signatures

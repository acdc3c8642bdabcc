"""What counts as the same answer."""

from collections import Counter

import numpy as np
import pytest

from serving import protos
from serving.benchmark import answers
from serving.client.tensors import fill_tensor


def answer(**outputs) -> bytes:
    response = protos.PredictResponse()
    for name, value in outputs.items():
        fill_tensor(response.outputs[name], np.asarray(value))
    return response.SerializeToString()


def wrong(reference, given, times=3):
    return answers.check(Counter({(0, given): times}), [reference])["wrong"]


Y = np.array([[0.25, 0.75]], np.float32)


@pytest.mark.parametrize(
    ("given", "is_wrong"),
    [
        (answer(y=Y + np.float32(1e-5)), False),
        (answer(y=Y + np.float32(0.1)), True),
        (answer(y=Y * np.float32(np.nan)), True),
        (answer(y=Y[:, :1]), True),
        (answer(y=Y.astype(np.float64)), True),
        (answer(z=Y), True),
        (b"\xff\xff\xff", True),
    ],
    ids=["rounding", "other", "nan", "shape", "type", "name", "garbage"],
)
def test_floats_may_differ_by_rounding_alone(given, is_wrong):
    assert wrong(answer(y=Y), given) == 3 * is_wrong


def test_integers_and_strings_must_be_equal():
    reference = answer(ids=np.array([1, 2]), words=np.array([b"a"], object))
    assert wrong(reference, answer(ids=np.array([1, 3]), words=np.array([b"a"], object)))
    assert wrong(reference, answer(ids=np.array([1, 2]), words=np.array([b"b"], object)))
    assert not wrong(reference, reference)


def test_served_answers_against_the_models_own():
    expected = [{"y": Y}, {"y": Y}, {"y": Y}, {"y": Y}]
    served = [answer(y=Y), answer(y=Y + np.float32(0.1)), answer(z=Y), b"\xff\xff"]
    assert answers.disagreements(served, expected) == 3


def test_no_reference_is_not_a_pass():
    assert answers.check(Counter(), [None]) == {"checked": False, "wrong": 0, "worst_difference": 0.0}

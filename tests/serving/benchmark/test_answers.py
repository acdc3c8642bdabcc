"""What counts as the same answer."""

from collections import Counter

import numpy as np
import pytest

from serving.benchmark import answers
from serving.wire import protos
from serving.wire.tensors import fill_tensor


def answer(version: int = 1, **outputs) -> bytes:
    response = protos.PredictResponse()
    response.model_spec.version.value = version
    for name, value in outputs.items():
        fill_tensor(response.outputs[name], np.asarray(value))
    return response.SerializeToString()


Y = np.array([[0.25, 0.75]], np.float32)
OUTPUTS = {"y": Y, "ids": np.array([1, 2]), "words": np.array([b"a"], object)}


@pytest.mark.parametrize(
    ("given", "is_wrong"),
    [
        (answer(**OUTPUTS), False),
        (answer(**OUTPUTS | {"y": Y + np.float32(1e-5)}), False),
        (answer(**OUTPUTS | {"y": Y + np.float32(0.1)}), True),
        (answer(**OUTPUTS | {"y": Y * np.float32(np.nan)}), True),
        (answer(**OUTPUTS | {"y": Y[:, :1]}), True),
        (answer(**OUTPUTS | {"y": Y.astype(np.float64)}), True),
        (answer(**OUTPUTS | {"ids": np.array([1, 3])}), True),
        (answer(**OUTPUTS | {"words": np.array([b"b"], object)}), True),
        (answer(z=Y), True),
        (b"\xff\xff\xff", True),
    ],
    ids=["same", "rounding", "other", "nan", "shape", "type", "integer", "string", "name", "garbage"],
)
def test_floats_may_differ_by_rounding_and_nothing_else_may(given, is_wrong):
    checked = answers.check(Counter({(0, given): 3}), [answers.read_grpc(answer(**OUTPUTS))])
    assert checked["answers"]["wrong"] == 3 * is_wrong


def test_served_answers_against_the_models_own():
    served = [answer(y=Y), answer(y=Y + np.float32(0.1)), answer(z=Y), b"\xff\xff"]
    assert answers.disagreements([answers.read_grpc(one) for one in served], [{"y": Y}] * 4) == 3


def test_no_reference_is_not_a_pass():
    assert answers.check(Counter(), [None]) == {
        "answers": {"checked": False, "wrong": 0, "worst_difference": 0.0}, "versions": {}
    }  # fmt: skip


def test_another_version_is_held_against_its_own_answers():
    reference, other = answers.read_grpc(answer(y=Y)), np.flip(Y)
    differing = Counter({(0, answer(2, y=other)): 5, (0, answer(2, y=other + np.float32(1e-5))): 4})
    checked = answers.check(differing, [reference], answered=[12])
    assert checked["answers"]["wrong"] == 0 and checked["versions"] == {"1": 3, "2": 9}
    # Neither version may give the other's answer, nor a third.
    differing |= Counter({(0, answer(1, y=other)): 2, (0, answer(2, y=Y)): 1})
    checked = answers.check(differing, [reference], answered=[15])
    assert checked["answers"]["wrong"] == 3 and checked["versions"] == {"1": 5, "2": 10}


@pytest.mark.parametrize(
    ("given", "is_wrong"),
    [
        (b'{"outputs": [[0.25, 0.750001]]}', False),
        (b'{"outputs": [[0.3, 0.7]]}', True),
        (b'{"outputs": {"y": [[0.25, 0.75]]}}', True),
        (b'{"error": "no"}', True),
        (b"<html>", True),
    ],
)
def test_json_answers_are_compared_as_numbers(given, is_wrong):
    read = answers.rest_reader(version=3)
    checked = answers.check(Counter({(0, given): 1}), [read(b'{"outputs": [[0.25, 0.75]]}')], [1], read)
    assert checked["answers"]["wrong"] == is_wrong

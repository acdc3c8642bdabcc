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
    assert answers.check(Counter({(0, given): 3}), [answer(**OUTPUTS)], 3)["wrong_answers"] == 3 * is_wrong


def test_another_version_is_compared_with_its_own_answers():
    reference, other = [answer(y=Y)], np.flip(Y)
    differing = Counter({(0, answer(2, y=other)): 5, (0, answer(2, y=other + np.float32(1e-5))): 4})
    assert answers.check(differing, reference, 12) == {"wrong_answers": 0, "not_compared": 0, "versions": [1, 2]}
    # All answers are those of version 2: none was the reference's.
    assert answers.check(differing, reference, 9)["versions"] == [2]
    # Neither version may give the other's answer.
    differing |= Counter({(0, answer(1, y=other)): 2, (0, answer(2, y=Y)): 1, None: 7})
    assert answers.check(differing, reference, 30) == {"wrong_answers": 3, "not_compared": 7, "versions": [1, 2]}

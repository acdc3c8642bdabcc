"""Weights of classes: what every row of training counts."""

import numpy as np
import pytest

from albert_tf.tasks.class_weights import weigh
from albert_tf.tasks.rows import Rows
from tfrecords.base.errors import UserError

LABELS = ("no", "yes", "maybe=1")


def rows(classes, target="label"):
    tokens = {"input_ids": [np.array([1, 2], np.int32)] * len(classes)}
    return Rows(tokens, {"label": np.array(classes, np.int32)}, 0, target=target)


def test_balanced_classes_count_alike():
    _, _, weights = weigh(rows([0, 0, 0, 1, 1, 2]), LABELS, "balanced").batch(range(6), 2)
    np.testing.assert_allclose(weights, np.array([2, 2, 2, 3, 3, 6]) / 3, rtol=1e-6)
    assert weights.dtype == np.float32 and weights.mean() == pytest.approx(1)


def test_weights_by_name_leave_the_others_at_one():
    _, labels, weights = weigh(rows([0, 1, 2]), LABELS, "yes=3,maybe=1=0.5").batch([0, 1, 2], 2)
    assert labels.tolist() == [0, 1, 2] and weights.tolist() == [1, 3, 0.5]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("perhaps=2", "names 'perhaps', which is none of no, yes"),
        ("balance", "names 'balance', which is none of no, yes, maybe=1; give balanced, or name=weight"),
        ("no=-1", "'-1' is no weight"),
        ("no=nan", "'nan' is no weight"),
        ("no=much", "'much' is no weight"),
    ],
)
def test_what_is_no_weight_is_named(wanted, message):
    with pytest.raises(UserError, match=message):
        weigh(rows([0, 1]), LABELS, wanted)


def test_tasks_without_classes_have_no_weights():
    for given in ((rows([0, 1]), None), (rows([0, 1], target="tag"), LABELS)):
        with pytest.raises(UserError, match="give every text a class"):
            weigh(*given, "balanced")

"""The field's figures, against their definitions written another way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.tasks.metrics import METRICS, accuracy, f1, macro_f1, matthews, mean_squared_error, pearson, spearman
from albert_tf.tasks.tagging import entities, entity_f1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=40))
def test_figures_of_classes_from_their_counts(pairs):
    predictions, labels = np.array(pairs).T
    size, right = len(pairs), sum(one == other for one, other in pairs)
    given, there = (np.bincount(column, minlength=3) for column in (predictions, labels))
    assert accuracy(predictions, labels) == pytest.approx(right / size)
    counted = given[1] + there[1]
    assert f1(predictions, labels) == pytest.approx(2 * pairs.count((1, 1)) / counted if counted else 0)
    # Gorodkin 2004, of any number of classes.
    norm = np.sqrt(float((size**2 - given @ given) * (size**2 - there @ there)))
    expected = (right * size - given @ there) / norm if norm else 0
    assert matthews(predictions, labels) == pytest.approx(expected, abs=1e-12)


def test_correlations():
    one, other = np.array([1.0, 2.5, -3.0, 7.25, 0.5, 2.5]), np.array([0.5, 2.0, 2.0, 4.0, -1.0, 0.0])
    # As scipy 1.17.1's pearsonr and spearmanr give them.
    assert pearson(one, other) == pytest.approx(0.48818360698254765, rel=1e-14)
    assert spearman(one, other) == pytest.approx(0.42647058823529416, rel=1e-14)
    assert spearman(one, np.exp(one)) == pytest.approx(1) and spearman(one, -(one**3)) == pytest.approx(-1)
    assert mean_squared_error(one, one + 5) == 25


def test_constant_answers_have_no_correlation_and_no_warning(recwarn):
    found = [METRICS[name](np.ones(4), np.arange(4)) for name in ("pearson", "spearman", "matthews")]
    assert found == [0, 0, 0] and not recwarn.list


def test_macro_f1_is_the_mean_over_classes():
    assert macro_f1(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])) == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)


def test_entities_as_conlleval_sees_them():
    tags = "B-PER I-PER O I-LOC I-LOC B-LOC I-PER B-PER I-ORG"
    expected = {("PER", 0, 1), ("LOC", 3, 4), ("LOC", 5, 5), ("PER", 6, 6), ("PER", 7, 7), ("ORG", 8, 8)}
    assert entities(tags.split()) == expected
    assert entities([]) == entities(["O", "O"]) == set()


def test_an_entity_counts_only_whole_and_with_its_type():
    for found, score in (
        ("B-PER I-PER O B-LOC", 1), ("B-PER O O B-LOC", 0.5), ("B-LOC I-LOC O B-LOC", 0.5), ("O O O O", 0)
    ):  # fmt: skip
        assert entity_f1([found.split()], [["B-PER", "I-PER", "O", "B-LOC"]]) == score
    assert entity_f1([["O"]], [["O"]]) == 0

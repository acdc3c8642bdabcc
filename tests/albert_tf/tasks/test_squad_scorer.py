"""The official figures: worked by hand, and against the rules written out question by question."""

import functools
import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.tasks.squad.data import GoldAnswer, SquadExample
from albert_tf.tasks.squad.scorer import (
    evaluate_v1,
    evaluate_v2,
    exact,
    f1_v1,
    f1_v2,
    normalize_answer,
    threshold_of_best_f1,
)


def question(name, *golds):
    return SquadExample(name, "?", "", tuple(GoldAnswer(gold, None) for gold in golds))


NORMAL = {
    "The  Cat's, a hat!": "cats hat", "a.n": "", "Theatre an-the": "theatre anthe", "“The” end": "“ ” end",
    "U.S.\tArmy\u00a0": "us army", "A": "", "": ""
}  # fmt: skip


def test_normalisation():
    assert {text: normalize_answer(text) for text in NORMAL} == NORMAL


def test_f1_counts_repeated_words():
    assert f1_v1("the big big dog", "big dog dog") == 2 * (2 / 3) * (2 / 3) / (2 / 3 + 2 / 3)
    assert f1_v1("cat", "dog") == 0
    assert exact("The dog.", "dog") == 1


def test_versions_differ_where_an_answer_has_no_words():
    assert (f1_v1("", ""), f1_v1("the", "a")) == (0, 0)
    assert (f1_v2("", ""), f1_v2("the", "a"), f1_v2("", "dog"), f1_v2("dog", "an")) == (1, 1, 0, 0)


def test_v1_takes_the_best_answer_and_counts_missing_ones_as_wrong():
    examples = [question("1", "red car", "car"), question("2", "blue"), question("3", "in Rome")]
    scores = evaluate_v1(examples, {"1": "the car", "3": "Rome"})
    assert [*scores.items()] == [("exact_match", 100.0 / 3), ("f1", 100.0 * (1 + 0 + 2 * 1 * 0.5 / 1.5) / 3)]


def test_v2_by_hand():
    examples = [question("1", "red car"), question("2"), question("3", "the"), question("4", "Rome"), question("5")]
    predictions = {"1": "car", "2": "", "3": "", "4": "Rome"}
    assert evaluate_v2(examples, predictions) == {
        **{"exact": 100.0 * 3 / 4, "f1": 100.0 * (2 / 3 + 3) / 4, "total": 4},
        **{"HasAns_exact": 100.0 * 2 / 3, "HasAns_f1": 100.0 * (2 / 3 + 2) / 3, "HasAns_total": 3},
        **{"NoAns_exact": 100.0, "NoAns_f1": 100.0, "NoAns_total": 1},
    }
    with pytest.raises(ValueError, match="no question has a prediction"):
        evaluate_v2(examples, {})


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_no_threshold_does_better_than_the_best(seed, count):
    # An answer of articles alone counts as given in the search and as none in the scores, in the official script too.
    rng, texts = np.random.default_rng(seed), ["cat", "Dog.", "7 of", "the cat", "of cat 7", "Dog. 7"]
    examples = [question(str(n), *rng.choice(texts, rng.integers(0, 3))) for n in range(count)]
    predictions = {str(n): str(rng.choice([*texts, "", ""])) for n in range(count)}
    odds = {str(n): float(value) for n, value in enumerate(rng.uniform(-5, 5, count))}
    # Below the least odds nothing is answered; at each of the odds one question more.
    tries = [evaluate_v2(examples, predictions, odds, threshold=one) for one in [-6.0, *odds.values()]]
    found = evaluate_v2(examples, predictions, odds, threshold_of_best_f1(examples, predictions, odds))
    for name in ("exact", "f1"):
        assert math.isclose(found[f"best_{name}"], max(one[name] for one in tries), abs_tol=1e-9)
    assert math.isclose(found["f1"], found["best_f1"], abs_tol=1e-9)


def test_sums_are_plain_double_precision():
    """Ten times 0.1 is not 1 in the official script, whatever Python's `sum` does."""
    gold, predicted = "a1 a2 a3 a4 a5 a6 a7 a8 a9", "a1 b2 b3 b4 b5 b6 b7 b8 b9 b10 b11"
    total = functools.reduce(operator.add, [f1_v1(predicted, gold)] * 10)
    scores = evaluate_v1([question(str(n), gold) for n in range(10)], {str(n): predicted for n in range(10)})
    assert total != 1.0 and scores["f1"] == 100.0 * total / 10

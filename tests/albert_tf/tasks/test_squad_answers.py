"""From scored spans to answers, against brute force over windows, and from answers to the official figures."""

import collections
import functools
import json
import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.score_squad import ScoreSettings, score
from albert_tf.tasks.squad.data import GoldAnswer, SquadExample, read_null_odds, read_predictions
from albert_tf.tasks.squad.scorer import (
    evaluate_v1,
    evaluate_v2,
    exact,
    f1_v1,
    f1_v2,
    normalize_answer,
    threshold_of_best_f1,
)
from albert_tf.tasks.squad.task import write_answers
from albert_tf.tasks.squad.windows import make_rows
from albert_tf.training.ensemble import combine_spans
from tests.refusals import assert_refused, changed, lines
from tests.tfrecords.tokenizers.twins import wordpiece
from tfrecords.answers.spans import Answers, Candidate, find_answers

LETTERS = "abcdefghij"


TOKENIZER = wordpiece(*LETTERS, "?")


@functools.cache
def rows_of(*sizes, cls_last=False):
    """Questions about so many letters each, and their rows."""
    examples = [SquadExample(str(n), "a ?", " ".join(LETTERS[:size]), ()) for n, size in enumerate(sizes)]
    return examples, make_rows(examples, TOKENIZER.with_cls_last(cls_last), 10, training=False, doc_stride=2)


def spans(*found):
    start, end, score = zip(*found)
    return {"start_index": np.array(start), "end_index": np.array(end), "score": np.array(score, np.float32)}


def random_outputs(rng, rows, joint):
    """What a model could give: distinct legal and illegal spans with scores; some slots empty."""
    outputs = []
    for length in rows.lengths:
        pairs = [(s, e) for s in range(length) for e in range(s, length)]
        chosen = [pairs[i] for i in rng.permutation(len(pairs))[:12]]
        found = [(s, e, -1e30 if rng.random() < 0.2 else -5 * rng.random()) for s, e in chosen]
        output = {"spans": spans(*sorted(found, key=lambda span: -span[2]))}
        if joint:
            output["answerable_logits"] = np.float32(rng.normal())
        else:
            output |= {f"{side}_log_probs": -rng.random(length).astype("float32") for side in ("start", "end")}
        outputs.append(output)
    return outputs


@given(seed=st.integers(0, 10**6), sizes=st.lists(st.integers(0, 10), min_size=1, max_size=3), joint=st.booleans())
def test_finds_what_brute_force_finds(seed, sizes, joint):
    examples, rows = rows_of(*sizes)
    outputs = random_outputs(np.random.default_rng(seed), rows, joint)
    found = find_answers(examples, rows, outputs, n_best=4, max_answer_length=3)
    for number, example in enumerate(examples):
        best, odds, words = {}, [], example.context.split()
        for row in np.flatnonzero(rows.example == number):
            for s, e, value in zip(*outputs[row]["spans"].values()):
                if 4 <= s <= e < 4 + rows.size[row] and e - s < 3 and value > -1e29:
                    text = " ".join(words[rows.first_token[row] + s - 4 : rows.first_token[row] + e - 3])
                    best[text] = max(best.get(text, -np.inf), float(value))
            ends = [] if joint else [outputs[row][f"{side}_log_probs"][0] for side in ("start", "end")]
            odds.append(float(outputs[row]["answerable_logits"]) if joint else sum(ends))
        expected = sorted(best.items(), key=lambda pair: -pair[1])[:4]
        assert [(one.text, one.score) for one in found[number].candidates] == expected
        of_best = 0 if joint else expected[0][1] if expected else -1e30
        assert found[number].null_odds == pytest.approx(min(odds) - of_best, rel=1e-5)


@given(seed=st.integers(0, 10**6), models=st.integers(1, 4), joint=st.booleans())
def test_an_ensemble_averages_over_the_models_that_proposed_a_span(seed, models, joint):
    rng = np.random.default_rng(seed)
    examples, rows = rows_of(7, 3)
    members = [random_outputs(rng, rows, joint) for _ in range(models)]
    combined = [combine_spans(of_row) for of_row in zip(*members)]
    for row, one in enumerate(combined):
        proposed = collections.defaultdict(list)
        for member in members:
            for s, e, value in zip(*member[row]["spans"].values()):
                if value > -1e29:
                    proposed[s, e].append(float(value))
        means = {(s, e): value for s, e, value in zip(*one["spans"].values())}
        assert means == pytest.approx({span: np.mean(values) for span, values in proposed.items()})
        assert np.all(np.diff(one["spans"]["score"]) <= 0)
    # Of null odds each model's least window counts; a plain head's are held against the ensemble's best span.
    apart = [find_answers(examples, rows, member) for member in members]
    for together, *own in zip(find_answers(examples, rows, combined), *apart):
        if joint or all(one.candidates for one in own):
            odds = [one.null_odds + (0 if joint else one.candidates[0].score) for one in own]
            best = 0 if joint else together.candidates[0].score
            assert together.null_odds == pytest.approx(np.mean(odds) - best, abs=1e-5)


def question(name, *golds):
    return SquadExample(name, "?", "", tuple(GoldAnswer(gold, None) for gold in golds))


@pytest.fixture
def written(tmp_path):
    examples = [question("1", "a b"), question("2")]
    answers = [Answers([Candidate("a b", -1.0), Candidate("b", -2.0)], -0.5), Answers([Candidate("x", 0.0)], 3.0)]
    return examples, write_answers(tmp_path / "dev", examples, answers, threshold=1.0)


def test_files_are_as_the_official_tools_read_them(written):
    _, paths = written
    assert [path.name for path in paths] == ["predictions.json", "nbest_predictions.json", "null_odds.json"]
    assert read_predictions(paths[0]) == {"1": "a b", "2": ""}
    nbest = json.loads(paths[1].read_text())["1"]
    assert [one["text"] for one in nbest] == ["a b", "b"]
    assert sum(one["probability"] for one in nbest) == pytest.approx(1)
    assert nbest[0]["probability"] / nbest[1]["probability"] == pytest.approx(np.e)
    assert read_null_odds(paths[2]) == {"1": -0.5, "2": 3.0}


def squad_file(path, examples):
    qas = [
        {"id": e.id, "question": e.question, "answers": [{"text": a.text, "answer_start": 0} for a in e.answers]}
        for e in examples
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "a b", "qas": qas}]}]}))


@pytest.fixture
def scored(written, tmp_path):
    """Settings of score_squad for the written answers; `more`, `one` and `other` have other questions."""
    (first, second), (predictions, _, odds) = written
    data = {"d": [first, second], "one": [first], "other": [second._replace(id="7")]}
    for name, examples in (data | {"more": [first, second, first._replace(id="3")]}).items():
        squad_file(tmp_path / f"{name}.json", examples)
    return ScoreSettings(data=f"{tmp_path}/d.json", predictions=str(predictions), null_odds=str(odds))


def test_score_squad(scored, tmp_path, capsys):
    found = score(scored)
    assert (found["exact"], found["best_f1"], found["NoAns_total"]) == (100.0, 100.0, 1)
    scored = changed(scored, "--null_odds=")
    assert score(changed(scored, f"--data={tmp_path}/one.json")) == {"exact_match": 100.0, "f1": 100.0}
    score(changed(scored, f"--data={tmp_path}/more.json"))
    assert "1 questions have no prediction" in capsys.readouterr().err


WRONG = r"""
--predictions=TMP/dev/nbest_predictions.json => question '1' has .* expected an object of ids with texts
--null_odds=TMP/dev/predictions.json => expected an object of ids with numbers
--data=TMP/one.json => --null_odds is for version 2.0
--data=TMP/other.json => answers no question
--data=TMP/none.json => cannot read
"""


@pytest.mark.parametrize("line", lines(WRONG))
def test_score_squad_says_what_is_wrong(scored, tmp_path, line):
    assert_refused(line.replace("TMP", str(tmp_path)), scored, score)


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

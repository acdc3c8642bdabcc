"""Characters that nobody sees at the ends of answers, and answers that are not where the file says."""

import json

import pytest

from albert_tf.tasks.squad.data import GoldAnswer, SquadExample
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.tasks.squad.windows import make_rows
from tests.tfrecords.tokenizers.twins import wordpiece
from tfrecords.answers.spans import edges, text_of
from tfrecords.base.errors import UserError

UNSEEN = "\u200b\u200e\u200f\ufeff\xad\u2060\u2066\u061c\u180e\x07\x7f\x85\xa0\u3000\u202a"


@pytest.fixture(scope="module")
def tokenizer():
    return wordpiece("mail", "to", "anna", "bell", "please", "?")


@pytest.mark.parametrize("one", UNSEEN, ids=lambda one: f"U+{ord(one):04X}")
def test_unseen_characters_at_its_ends_are_no_part_of_an_answer(tokenizer, one):
    context = f"mail to {one}anna{one}{one} bell{one}please"
    _, _, offsets = tokenizer.encode_with_offsets([context])
    assert text_of(context, offsets, 2, 2) == "anna"
    # The answer as a web page gave it, and as its reader saw it: equal labels.
    labels = []
    for answer in (f"{one}anna{one}", "anna"):
        example = SquadExample("q", "?", context, (GoldAnswer(answer, context.index(answer)),))
        labels.append(make_rows([example], tokenizer, 32, training=True).values)
    assert labels[0] == labels[1] and labels[0]["is_impossible"] == 0
    assert labels[0]["end_positions"] - labels[0]["start_positions"] == 0


def test_an_answer_of_nothing_else_is_none(tokenizer):
    context = "mail to\u200b\u200b anna"
    example = SquadExample("q", "?", context, (GoldAnswer("\u200b", 8),))
    rows = make_rows([example], tokenizer, 32, training=True)
    assert rows.unaligned == 1 and rows.values["is_impossible"] == 1


@pytest.mark.parametrize("one", ["\u0600", "\ufe0f", "\U000e007f", "\ufffd", "\uf0b7", "\u0301", "\U0001f600"])
def test_signs_that_are_seen_stay(one):
    assert f"\u200b{one}x{one}\ufeff".strip(edges()) == f"{one}x{one}"


def write(path, starts, context="mail to anna"):
    entries = [
        {"id": f"q{number}", "question": "?", "answers": [{"text": "anna", "answer_start": start}]}
        for number, start in enumerate(starts)
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": context, "qas": entries}]}]}))


def test_all_misplaced_answers_are_counted_and_five_are_named(tmp_path):
    write(tmp_path / "train-v1.1.json", [8, None, -1, 0, *[7] * 5])
    with pytest.raises(UserError) as error:
        SquadTask("squad1", str(tmp_path)).read("train")
    named = [("q2", -1, "mail"), ("q3", 0, "mail"), ("q4", 7, " ann"), ("q5", 7, " ann")]
    said = "; ".join(f"question '{name}': answer_start {n} points at '{at}', not at 'anna'" for name, n, at in named)
    assert str(error.value) == (
        f"'{tmp_path}/train-v1.1.json': 8 answers are misplaced, such as these: question 'q1' has no answer_start, "
        f"which training needs; {said}; fix the file, or remove the questions"
    )
    # Only training needs the places.
    write(tmp_path / "dev-v1.1.json", [0, None])
    assert len(SquadTask("squad1", str(tmp_path)).read("dev")) == 2

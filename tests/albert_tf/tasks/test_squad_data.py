"""SQuAD's files, windows over long passages, and the way from text to tokens and back."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import example as shown
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.tasks.squad.data import GoldAnswer, SquadExample, read_squad
from albert_tf.tasks.squad.task import SquadTask
from albert_tf.tasks.squad.windows import make_rows, token_span
from tests.refusals import lines, refused
from tests.tfrecords.tokenizers.twins import wordpiece
from tfrecords.answers.spans import edges, text_of
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.vocabularies.training import train_tokenizer

CONTEXT = "Rome was not built in a day. Caf\u00e9 society, 1,234 ﬁne words “quoted”."


QUESTION = '"id": "q", "question": "What?", "answers": [{"text": "built", "answer_start": 13}]'


def file_of(questions, context=CONTEXT):
    paragraph = f'{{"context": "{context}", "qas": [{questions}]}}'
    return f'{{"version": "v2.0", "data": [{{"title": "t", "paragraphs": [{paragraph}]}}]}}'


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("spm") / "spm.model"
    path.write_bytes(train_tokenizer([CONTEXT, "what who built this?"] * 50, vocab_size=100, hard_vocab_limit=False))
    return load_tokenizer(path)


def test_reads_packed_questions_with_one_context_each_paragraph(tmp_path):
    data = file_of(f'{{{QUESTION}}}, {{"id": "n", "question": "No?", "answers": [], "is_impossible": true}}').encode()
    path = tmp_path / "dev.json"
    path.write_bytes(gzip.compress(data))
    first, second = read_squad(path)
    assert first == SquadExample("q", "What?", CONTEXT, (GoldAnswer("built", 13),))
    assert second.answers == () and second.context is first.context


# What a file holds, or between bars its questions.
WRONG = r"""
[1] => the file has no list 'data'
{"data": []} => holds no questions
{"data": [{"paragraphs": [{"qas": []}]}]} => data\[0\].paragraphs\[0\] has no text 'context'
| {"question": "x"} | => qas\[0\] has no text 'id'
| {"id": "7", "question": "x"} | => \(question '7'\) has no list 'answers'
| {"id": "q", "question": "x", "answers": [{"text": "a", "answer_start": "3"}]} | => answer_start '3', which is not
| {QUESTION}, {QUESTION} | => qas\[1\] repeats question id 'q'
| {QUESTION, "is_impossible": true} | => is_impossible and has answers
{ => not JSON
{"data": "le caf\xe9 \xe9tait ferm\xe9"} => is not JSON in UTF-8: it is .*iconv -f cp1252
\xff\xfe{\0"\0 => is not JSON in UTF-8: it is .*UTF-16 text
\x1f\x8bxx => cannot read
"""


@pytest.mark.parametrize("line", lines(WRONG))
def test_says_in_a_line_where_a_file_is_wrong(tmp_path, line):
    content, _, message = line.replace("QUESTION", QUESTION).partition(" => ")
    content = file_of(content.strip("| "), "Rome") if content.startswith("|") else content
    (tmp_path / "dev.json.gz").write_bytes(content.encode().decode("unicode_escape").encode("latin-1"))
    with refused(message) as error:
        read_squad(tmp_path / "dev.json.gz")
    assert "\n" not in str(error.value)


texts = st.lists(
    st.one_of(
        st.sampled_from(["Rome", "built", "caf\u00e9", "cafe\u0301s", "1,9", "½", "罗马", "ﬁne", "“a”", "\u200b", "™"]),
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=4),
    ),
    max_size=12,
).map(" ".join)


@given(context=texts, cut=st.tuples(st.floats(0, 1), st.floats(0, 1)))
@shown(context="cafe\u0301s \u200b 罗马", cut=(0.3, 0.7))
@shown(context="\u200b Rome ™", cut=(0, 0.1))
def test_every_answer_maps_to_tokens_and_back_to_text_that_holds_it(tokenizer, context, cut):
    begin, end = (round(len(context) * part) for part in sorted(cut))
    letters = wordpiece("r", "##o", "罗")
    for one in (tokenizer, letters):
        offsets = one.encode_with_offsets([context])[2]
        span = token_span(offsets, begin, end)
        held = {at for first, last in offsets for at in range(first, last)}
        wanted = {at for at in range(begin, end) if at in held}
        if span is None:
            assert not wanted
            continue
        first, last = span
        assert wanted <= set(range(offsets[first, 0], offsets[last, 1]))
        # No token that could be spared.
        if wanted and begin < end:
            assert offsets[first, 1] > begin and offsets[last, 0] < end
        assert text_of(context, offsets, first, last) in context


def example(answer, context=CONTEXT):
    return SquadExample("q", "what built this?", context, (GoldAnswer(answer, context.index(answer)),))


def rebuilt(rows, examples, row):
    """The text of the labelled tokens of a row."""
    shift = rows.first_token[row] - rows.first_column[row]
    number = rows.example[row]
    first, last = rows.values["start_positions"][row] + shift, rows.values["end_positions"][row] + shift
    return text_of(examples[number].context, rows.offsets[number], first, last)


@pytest.mark.parametrize("answer", ["Rome", "built in a day", "Caf\u00e9", "1,234", "ﬁne words", "quoted"])
@pytest.mark.parametrize("max_seq_length", [16, 24, 128])
def test_labels_give_the_answer_back_in_every_window_that_holds_it(tokenizer, answer, max_seq_length):
    examples = [example("Rome"), example(answer), SquadExample("n", "no?", CONTEXT, ())]
    rows = make_rows(examples, tokenizer, max_seq_length, training=True, doc_stride=3)
    assert (np.diff(rows.example) >= 0).all() and rows.unaligned == 0
    impossible = rows.values["is_impossible"]
    assert all(impossible[rows.example == 2])
    begin = CONTEXT.index(answer)
    span = token_span(rows.offsets[1], begin, begin + len(answer))
    for row in np.flatnonzero(rows.example == 1):
        holds = rows.first_token[row] <= span[0] and span[1] < rows.first_token[row] + rows.size[row]
        assert holds == (impossible[row] == 0)
        if holds:
            assert answer in rebuilt(rows, examples, row)
        else:
            assert rows.values["start_positions"][row] == rows.values["end_positions"][row] == 0


def test_each_token_of_the_passage_may_start_an_answer_in_one_window_and_in_one_only(tokenizer):
    rows = make_rows([example("built")], tokenizer, 24, training=False, doc_stride=4)
    assert len(rows) > 2 and not rows.values and rows.lengths.max() == 24
    starts = []
    for row, (start, size, before) in enumerate(zip(rows.first_token, rows.size, rows.first_column)):
        p_mask, start_mask = (rows.tokens[name][row].tolist() for name in ("p_mask", "start_mask"))
        starts += (np.flatnonzero(np.equal(start_mask, 0)) - before + start).tolist()
        assert p_mask == [0] + [1] * (before - 1) + [0] * size + [1]
    assert sorted(starts) == list(range(len(tokenizer.encode(CONTEXT))))


def test_what_cannot_be_framed(tokenizer):
    with refused("give 8 at least"):
        make_rows([example("Rome")], tokenizer, 7, training=False)
    wrong = [SquadExample("x", "?", CONTEXT, (GoldAnswer("Rome", 3),))]
    with refused("question 'x': answer_start 3 points at 'e wa', not at 'Rome'; fix the file"):
        make_rows(wrong, tokenizer, 32, training=True)
    assert not make_rows(wrong, tokenizer, 32, training=False).values


# Characters that nobody sees at the ends of answers.
UNSEEN = "\u200b\u200e\u200f\ufeff\xad\u2060\u2066\u061c\u180e\x07\x7f\x85\xa0\u3000\u202a"


MAIL = wordpiece("mail", "to", "anna", "bell", "please", "?")


@pytest.mark.parametrize("one", UNSEEN, ids=lambda one: f"U+{ord(one):04X}")
def test_unseen_characters_at_its_ends_are_no_part_of_an_answer(one):
    context = f"mail to {one}anna{one}{one} bell{one}please"
    _, _, offsets = MAIL.encode_with_offsets([context])
    assert text_of(context, offsets, 2, 2) == "anna"
    # The answer as a web page gave it, and as its reader saw it: equal labels.
    labels = []
    for answer in (f"{one}anna{one}", "anna"):
        example = SquadExample("q", "?", context, (GoldAnswer(answer, context.index(answer)),))
        labels.append(make_rows([example], MAIL, 32, training=True).values)
    assert labels[0] == labels[1] and labels[0]["is_impossible"] == 0
    assert labels[0]["end_positions"] - labels[0]["start_positions"] == 0


def test_an_answer_of_nothing_else_is_none():
    context = "mail to\u200b\u200b anna"
    example = SquadExample("q", "?", context, (GoldAnswer("\u200b", 8),))
    rows = make_rows([example], MAIL, 32, training=True)
    assert rows.unaligned == 1 and rows.values["is_impossible"] == 1


@pytest.mark.parametrize("one", ["\u0600", "\ufe0f", "\U000e007f", "\ufffd", "\uf0b7", "\u0301", "\U0001f600"])
def test_signs_that_are_seen_stay(one):
    assert f"\u200b{one}x{one}\ufeff".strip(edges()) == f"{one}x{one}"


def write(path, starts):
    entries = [
        {"id": f"q{number}", "question": "?", "answers": [{"text": "anna", "answer_start": start}]}
        for number, start in enumerate(starts)
    ]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "mail to anna", "qas": entries}]}]}))


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


@pytest.mark.slow
def test_all_of_squad_aligns(shared):
    tokenizer = load_tokenizer(shared / "data" / "spm" / "30k-clean.model")
    examples = read_squad(shared / "data" / "squad" / "dev-v1.1.json.gz")
    rows = make_rows(examples, tokenizer, 384, training=True)
    assert rows.unaligned == 0 and set(rows.example[rows.values["is_impossible"] == 0]) == set(range(len(examples)))
    exactly = 0
    for row in np.flatnonzero(rows.values["is_impossible"] == 0):
        answer, found = examples[rows.example[row]].answers[0].text.strip(), rebuilt(rows, examples, row)
        assert answer in found
        exactly += answer == found
    # What is left are answers that begin or end inside a word.
    assert exactly > 0.99 * len(examples)

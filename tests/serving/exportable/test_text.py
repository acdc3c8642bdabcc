"""Strings in: the graph sees the ids that Python's tokenizer gives, and answers as the model does on those."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.tasks.squad.answers import find_answers
from albert_tf.tasks.squad.data import SquadExample
from albert_tf.tasks.squad.windows import make_rows
from serving.exportable.spans import _with_texts, _without_spaces
from tfrecords.framing import Framer, encode

FIRST = ["The Café is 2,000 mats (two)", "", "paris", "the cat sat in the river of france and the film is dull " * 4]
# One servable a head, so that tests share what was traced.
OPTIONS = {
    "classifier": {"max_seq_length": 20},
    "pretrainer": {"max_seq_length": 20},
    "token classifier": {"max_seq_length": 12},
    "multiple choice": {"max_seq_length": 24, "num_choices": 3},
    "spans": {"max_seq_length": 24, "doc_stride": 5, "max_query_length": 8},
    "joint spans": {"max_seq_length": 24, "doc_stride": 5, "max_query_length": 8},
}
SECOND = ["", "in paris", "what is the capital of france " * 5, "a fine river runs in the capital " * 5]


def ids_of(tokenizer, text):
    return np.array(tokenizer.encode(text), np.int32)


def padded(rows, segments=None):
    """Inputs of an `ids` signature that takes segments."""
    width = max(map(len, rows))

    def fill(values):
        return np.array([[*row, *[0] * (width - len(row))] for row in values], np.int32)

    segments = segments or [np.zeros(len(row), np.int32) for row in rows]
    return {"input_ids": fill(rows), "lengths": [len(row) for row in rows], "segment_ids": fill(segments)}


@pytest.mark.parametrize("head", ["classifier", "pretrainer"])
@pytest.mark.few(1)
def test_a_text_is_framed_and_cut_as_in_fine_tuning(serve, tokenizer, head):
    _, served = serve(head, text=True, **OPTIONS[head])
    rows = Framer(tokenizer, 20).single(encode(tokenizer, FIRST)).input_ids.to_list()
    by_ids = served("ids", **padded(rows))
    answers = served("serving_default", text=FIRST)
    for name, values in by_ids.items():
        if values.dtype == object:
            assert values.tolist() == answers[name].tolist()
        else:
            np.testing.assert_allclose(values, answers[name], atol=1e-5)
    tokens = served("tokenize", text=FIRST)
    assert [ids[:size].tolist() for ids, size in zip(tokens["input_ids"], tokens["lengths"])] == [row for row in rows]
    assert tokens["pieces"][2].tolist()[:4] == [b"[CLS]", b"paris", b"[SEP]", b""]


@pytest.mark.parametrize("limit", [8, 19])
@pytest.mark.few(1)
def test_a_pair_is_framed_and_cut_as_in_fine_tuning(serve, tokenizer, limit):
    _, served = serve("classifier", text=True, max_seq_length=limit, task={"inputs": ["premise", "hypothesis"]})
    pairs = [(a, b) for a in FIRST for b in SECOND]
    texts = {"first": [a for a, _ in pairs], "second": [b for _, b in pairs]}
    framed = Framer(tokenizer, limit).pair(*(encode(tokenizer, column) for column in texts.values()))
    rows, segments = framed.input_ids.to_list(), framed.segment_ids.to_list()
    tokens = served("tokenize", **texts)
    expected = padded(rows, segments)
    for name in ("input_ids", "segment_ids"):
        np.testing.assert_array_equal(tokens[name], expected[name])
    logits = served("serving_default", **texts)["logits"]
    np.testing.assert_allclose(logits, served("ids", **expected)["logits"], atol=1e-5)


# Of a head what its text signature is asked, and the texts of each row as tokens are counted.
TRUNCATED = {
    "classifier": ({"text": FIRST}, lambda row: [FIRST[row]]),
    "pretrainer": ({"text": FIRST}, lambda row: [FIRST[row]]),
    "token classifier": ({"text": FIRST}, lambda row: FIRST[row].split()),
    "multiple choice": (
        {"context": FIRST, "question": ["what"] * 4, "choices": [["in paris", "the cat", ""]] * 4},
        lambda row: [FIRST[row], "what in paris", FIRST[row], "what the cat"],
    ),
    "joint spans": ({"context": FIRST, "question": SECOND}, lambda row: [FIRST[row], SECOND[row]]),
}


@pytest.mark.parametrize("head", TRUNCATED)
@pytest.mark.few(2)
def test_it_tells_how_many_tokens_were_not_read(serve, tokenizer, head):
    inputs, texts = TRUNCATED[head]
    _, served = serve(head, text=True, **OPTIONS[head])
    answers = served("serving_default", **inputs)
    whole = [sum(len(ids_of(tokenizer, text)) for text in texts(row)) for row in range(len(FIRST))]
    assert answers["text_tokens"].tolist() == whole
    # [CLS] and [SEP] take room too; of a context every token is read, of a question the first eight.
    room = {"classifier": 18, "pretrainer": 18, "token classifier": 10, "multiple choice": 2 * 21}
    if head == "joint spans":
        expected = [max(len(ids_of(tokenizer, text)) - 8, 0) for text in SECOND]
    else:
        expected = [max(size - room[head], 0) for size in whole]
    assert answers["truncated_tokens"].tolist() == expected and max(expected) > 0
    tokens = served("tokenize", text=FIRST)
    assert tokens["text_tokens"].shape == tokens["truncated_tokens"].shape == (4,)


def test_a_single_output_stays_alone(serve):
    """REST would answer with objects in place of values."""
    for head, signature in (("embedder", "serving_default"), ("regressor", "serving_default")):
        _, served = serve(head, text=True, max_seq_length=20)
        assert len(served(signature, text=FIRST)) == 1
        assert served("tokenize", text=FIRST)["truncated_tokens"][3] > 0


def test_examples_carry_the_texts_by_the_names_of_the_default_signature(serve):
    def example(**texts):
        example = tf.train.Example()
        for name, value in texts.items():
            example.features.feature[name].bytes_list.value.append(value.encode())
        return example.SerializeToString()

    _, single = serve("classifier", text=True, **OPTIONS["classifier"])
    scores = single("classify", inputs=[example(text=text) for text in FIRST])["scores"]
    np.testing.assert_allclose(scores, single("serving_default", text=FIRST)["probabilities"], atol=1e-6)
    _, pair = serve("regressor", text=True, task={"inputs": ["sentence1", "sentence2"]})
    values = pair("regress", inputs=[example(first=a, second=b) for a, b in zip(FIRST, SECOND)])["outputs"]
    np.testing.assert_allclose(values, pair("serving_default", first=FIRST, second=SECOND)["value"], atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="second"):
        pair("regress", inputs=[example(first="the cat")])


def test_words_are_tagged_by_their_first_piece(serve, tokenizer):
    _, served = serve("token classifier", text=True, **OPTIONS["token classifier"])
    texts = ["  the  Café\tsat", "", "paris abcdef xyz in the mat of who", "cat \u200d sat"]
    answers = served("serving_default", text=texts)
    for row, text in enumerate(texts):
        words = text.split()
        # A word of which nothing is left is an unknown one.
        pieces = [tokenizer.encode(word) or [tokenizer.unk_id] for word in words]
        flat = [2, *itertools.chain.from_iterable(pieces)][:11] + [3]
        logits = served("ids", input_ids=[flat], lengths=[len(flat)])["logits"][0]
        place = 1
        for column, (word, own) in enumerate(zip(words, pieces)):
            start, end = answers["starts"][row, column], answers["ends"][row, column]
            assert answers["words"][row, column].decode() == text[start:end] == word
            if place < 11:
                np.testing.assert_allclose(answers["logits"][row, column], logits[place], atol=1e-5)
                assert answers["labels"][row, column] == str(logits[place].argmax()).encode()
            else:
                assert answers["labels"][row, column] == b""
            place += len(own)
        assert set(answers["labels"][row, len(words) :]) <= {b""}
    assert answers["labels"][2].tolist().count(b"") > 0


def test_choices_are_read_as_in_fine_tuning(serve, tokenizer):
    _, served = serve("multiple choice", text=True, **OPTIONS["multiple choice"])
    contexts = ["the cat sat in the river", "paris is the capital of france " * 6]
    questions = ["who sat?", "the _ of _ is paris"]
    choices = [["cat", "mat", ""], ["capital", "a river", "the film is dull and the cat sat " * 5]]
    answers = served("serving_default", context=contexts, question=questions, choices=choices)
    for row, (context, question) in enumerate(zip(contexts, questions)):
        for column, choice in enumerate(choices[row]):
            text = question.replace("_", choice) if "_" in question else f"{question} {choice}"
            second = ids_of(tokenizer, text)[-21:]
            first = ids_of(tokenizer, context)[: 21 - len(second)]
            ids = [2, *first, 3, *second, 3]
            segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
            alone = served("ids", input_ids=[[ids] * 3], lengths=[[len(ids)] * 3], segment_ids=[[segments] * 3])
            if choice:
                np.testing.assert_allclose(answers["logits"][row, column], alone["logits"][0, 0], atol=1e-5)
    assert answers["probabilities"][0, 2] == 0
    chosen = [choices[row][best].encode() for row, best in enumerate(answers["choice"])]
    assert answers["answer"].tolist() == chosen


CONTEXTS = [
    "Paris is the capital of France, the film. "
    + "Two thousand cats sat in the river Café (a fine one) of 2,000 mats. " * 3,
    "the cat sat",
    "",
    "  What?  ",
    "a fine river runs in Paris " * 12,
]
QUESTIONS = ["What is the capital of France?", "who sat?", "what?", "the", "what river runs " * 12]


@pytest.mark.parametrize("head", ["spans", "joint spans"])
@pytest.mark.few(1)
def test_answers_are_those_of_the_squad_task(serve, tokenizer, head):
    """Windows, search, n-best and no-answer score in the graph, against the Keras model and the Python code."""
    model, served = serve(head, text=True, **OPTIONS[head])
    answers = served("serving_default", question=QUESTIONS, context=CONTEXTS)
    examples = [
        SquadExample(str(number), question, context, answers=())
        for number, (question, context) in enumerate(zip(QUESTIONS, CONTEXTS))
    ]
    rows = make_rows(examples, tokenizer, 24, training=False, doc_stride=5, max_query_length=8)
    features, *_ = rows.batch(range(len(rows)), 24)
    outputs = keras.tree.map_structure(keras.ops.convert_to_numpy, dict(model(features)))
    per_row = [keras.tree.map_structure(lambda values, row=row: values[row], outputs) for row in range(len(rows))]
    for number, expected in enumerate(find_answers(examples, rows, per_row, n_best=5)):
        assert answers["answer"][number].decode() == expected.text(None)
        if not expected.candidates:
            continue
        np.testing.assert_allclose(answers["no_answer_score"][number], expected.null_odds, atol=1e-4)
        best = dict(zip(answers["answers"][number], answers["scores"][number]))
        for candidate in expected.candidates[:2]:
            np.testing.assert_allclose(best[candidate.text.encode()], candidate.score, atol=1e-4)
        start, end = answers["start"][number], answers["end"][number]
        assert CONTEXTS[number][start:end].strip() == answers["answer"][number].decode()
        assert answers["score"][number] == answers["scores"][number, 0]


@settings(max_examples=60, deadline=None)
@given(
    st.text(
        st.sampled_from("ab\u00e9\U0001d4b3 \t\n\x0b\x1c\x1f\x85\xa0\u1680\u2009\u2028\u3000\u200b\ufeff"), max_size=8
    )
)
def test_white_space_at_an_answers_ends_goes_as_strip_takes_it(text):
    answer, start, end = (
        value.numpy()[0, 0] for value in _without_spaces(*map(tf.constant, ([f"x{text}y"], [[1]], [[1 + len(text)]])))
    )
    assert answer.decode() == text.strip() == f"x{text}y"[start:end]


def test_an_answer_of_white_space_alone_is_none():
    best = {"first": tf.constant([[1, 0]]), "last": tf.constant([[1, 0]]), "scores": tf.constant([[-1.0, -2.0]])}
    found = _with_texts(tf.constant(["ab  "]), tf.constant([0, 2]), tf.constant([3, 4]), best)
    assert found["answers"].numpy().tolist() == [[b"ab", b""]]
    assert found["starts"].numpy().tolist() == [[0, 0]] and found["ends"].numpy().tolist() == [[2, 0]]
    assert found["scores"].numpy()[0].tolist() == [-2.0, np.float32(-1e30)]


@pytest.mark.parametrize("head", ["classifier", "pretrainer", "token classifier", "multiple choice", "spans"])
@pytest.mark.few(2)
def test_no_rows_give_answers_of_no_rows(serve, head):
    _, served = serve(head, text=True, **OPTIONS[head])
    for name, signature in served.signatures.items():
        if name not in ("serving_default", "fill_mask", "sentence_order", "sparse"):
            continue
        inputs = {
            key: np.zeros([0] + [size or 0 for size in spec.shape[1:]], "U1") for key, spec in signature.inputs.items()
        }
        assert {len(values) for values in served(name, **inputs).values()} == {0}


def test_no_answer_above_the_threshold(serve):
    model, served = serve("joint spans", text=True, **OPTIONS["joint spans"])
    texts = {"question": QUESTIONS, "context": CONTEXTS}
    scores = served("serving_default", **texts)["no_answer_score"]
    threshold = float(np.sort(scores[:2]).mean())
    _, limited = serve(model, text=True, **OPTIONS["joint spans"], task={"null_threshold": threshold})
    answers = limited("serving_default", **texts)
    assert [bool(answer) for answer in answers["answer"][:2]] == [score <= threshold for score in scores[:2]]
    unanswered = int(np.argmax(scores[:2]))
    assert answers["start"][unanswered] == answers["end"][unanswered] == 0 and answers["answers"][unanswered, 0]


def test_a_question_alone_and_in_a_batch_has_one_answer(serve):
    _, served = serve("spans", text=True, **OPTIONS["spans"])
    together = served("serving_default", question=QUESTIONS, context=CONTEXTS)
    for row, (question, context) in enumerate(zip(QUESTIONS, CONTEXTS)):
        alone = served("serving_default", question=[question], context=[context])
        assert alone["answers"][0].tolist() == together["answers"][row].tolist()
        np.testing.assert_allclose(alone["scores"][0], together["scores"][row], atol=1e-4)
    # Of the empty context too: what fills up is no score of -1e30.
    assert not all(together["answer"]) and together["scores"].min() == together["score"].min() == -1e4
    assert np.abs(together["no_answer_score"]).max() <= 2e4


def test_terms_are_the_pieces_that_weigh_something(serve, tokenizer):
    _, served = serve("pretrainer", text=True, **OPTIONS["pretrainer"])
    answers = served("sparse", text=["the cat sat", ""])
    for row in range(2):
        count = np.count_nonzero(answers["weights"][row])
        assert count and not any(answers["terms"][row, count:])
        pieces = [tokenizer.pieces[one].encode() for one in answers["ids"][row, :count]]
        assert answers["terms"][row, :count].tolist() == pieces

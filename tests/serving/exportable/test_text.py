"""Strings in: choices, contexts, masks and words are read as in fine-tuning. One text or a pair: see the contract."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.tasks.squad.data import SquadExample
from albert_tf.tasks.squad.windows import make_rows
from albert_tf.tasks.tagging import TaggedExample, tagged_rows
from serving.exportable.samples import whole_words
from serving.exportable.spans import _with_texts, _without_edges
from tests.serving.conftest import assert_close
from tfrecords.answers.spans import edges, find_answers

pytestmark = pytest.mark.usefixtures("eagerly")
SPANS = {"max_seq_length": 24, "doc_stride": 5, "max_query_length": 8}


def test_choices_are_read_as_in_fine_tuning(serve, tokenizer):
    _, served = serve("multiple choice", True, max_seq_length=24, num_choices=3)
    contexts = ["the cat sat in the river", "paris is the capital of france " * 6]
    questions = ["who sat?", "the _ of _ is paris"]
    choices = [["cat", "mat", ""], ["capital", "a river", "the film is dull and the cat sat " * 5]]
    answers = served(context=contexts, question=questions, choices=choices)
    for row, (context, question) in enumerate(zip(contexts, questions)):
        for column, choice in enumerate(filter(None, choices[row])):
            text = question.replace("_", choice) if "_" in question else f"{question} {choice}"
            second = tokenizer.encode(text)[-21:]
            first = tokenizer.encode(context)[: 21 - len(second)]
            ids, segments = [2, *first, 3, *second, 3], [0] * (len(first) + 2) + [1] * (len(second) + 1)
            alone = served("ids", input_ids=[[ids] * 3], lengths=[[len(ids)] * 3], segment_ids=[[segments] * 3])
            assert_close(answers["logits"][row, column], alone["logits"][0, 0])
    assert answers["probabilities"][0, 2] == 0
    chosen = [of_row[best].encode() for of_row, best in zip(choices, answers["choice"])]
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


@pytest.mark.parametrize("head, family", [("spans", "albert"), ("spans", "roberta"), ("joint spans", "xlnet")])
def test_answers_are_those_of_the_squad_task(serve, tokenizer_of, head, family):
    """Windows, search, n-best and no-answer score in the graph, against the Keras model and the Python code."""
    model, served = serve(head, True, family, **SPANS)
    answers = served(question=QUESTIONS, context=CONTEXTS)
    examples = [SquadExample(str(n), *texts, answers=()) for n, texts in enumerate(zip(QUESTIONS, CONTEXTS))]
    rows = make_rows(examples, tokenizer_of(family), 24, training=False, doc_stride=5, max_query_length=8)
    features, *_ = rows.batch(range(len(rows)), 24)
    outputs = keras.tree.map_structure(keras.ops.convert_to_numpy, dict(model(features)))
    per_row = [keras.tree.map_structure(lambda values, row=row: values[row], outputs) for row in range(len(rows))]
    for number, expected in enumerate(find_answers(examples, rows, per_row, n_best=5)):
        found = {name: values[number] for name, values in answers.items()}
        text, texts, scores = found["answer"].decode(), found["answers"], found["scores"]
        assert text == expected.text(None)
        if not expected.candidates:
            continue
        assert_close(found["no_answer_score"], expected.null_odds, atol=1e-4)
        # A text may be proposed from several places; Python proposes it once.
        best = dict(zip(texts[::-1], scores[::-1]))
        assert texts[0].decode() == expected.candidates[0].text
        for candidate in expected.candidates[:2]:
            if candidate.text.encode() in best:
                assert_close(best[candidate.text.encode()], candidate.score, atol=1e-4)
        assert CONTEXTS[number][found["start"] : found["end"]].strip() == text
        assert found["score"] == scores[0]
    assert_close(answers["probabilities"], tf.nn.softmax(answers["scores"]) * (answers["answers"] != b""))
    # Of the empty context too: what fills up is no score of -1e30.
    assert not all(answers["answer"]) and answers["scores"].min() == answers["score"].min() == -1e4
    assert head == "joint spans" or np.abs(answers["no_answer_score"]).max() <= 2e4


@given(
    st.text(
        st.sampled_from(
            "ab\u00e9\U0001d4b3 \t\n\x0b\x1c\x1f\x85\xa0\u1680\u2009\u2028\u3000\u200b\u200e\xad\ufeff\u0600\x00"
        ),
        max_size=8,
    )
)
def test_white_space_at_an_answers_ends_goes_as_strip_takes_it(text):
    answer, start, end = (
        value.numpy()[0, 0] for value in _without_edges(*map(tf.constant, ([f"x{text}y"], [[1]], [[1 + len(text)]])))
    )
    assert answer.decode() == text.strip(edges()) == f"x{text}y"[start:end]


def test_an_answer_of_white_space_alone_is_none():
    best = {"first": tf.constant([[1, 0]]), "last": tf.constant([[1, 0]]), "scores": tf.constant([[-1.0, -2.0]])}
    found = _with_texts(tf.constant(["ab  "]), tf.constant([0, 2]), tf.constant([3, 4]), best)
    assert found["answers"].numpy().tolist() == [[b"ab", b""]]
    assert found["starts"].numpy().tolist() == [[0, 0]] and found["ends"].numpy().tolist() == [[2, 0]]
    assert found["scores"].numpy()[0].tolist() == [-2.0, np.float32(-1e30)]


def test_no_answer_above_the_threshold(serve):
    model, served = serve("joint spans", True, **SPANS)
    texts = {"question": QUESTIONS, "context": CONTEXTS}
    scores = served(**texts)["no_answer_score"]
    threshold = float(np.sort(scores[:2]).mean())
    _, limited = serve(model, True, **SPANS, task={"null_threshold": threshold})
    answers = limited(**texts)
    assert [bool(answer) for answer in answers["answer"][:2]] == [score <= threshold for score in scores[:2]]
    unanswered = int(np.argmax(scores[:2]))
    assert answers["start"][unanswered] == answers["end"][unanswered] == 0 and answers["answers"][unanswered, 0]


def test_terms_are_the_pieces_that_weigh_something(serve, tokenizer):
    _, served = serve("pretrainer", True, max_seq_length=20)
    answers = served("sparse", text=["the cat sat", ""])
    pieces = np.array([piece.encode() for piece in tokenizer.pieces], object)[answers["ids"]]
    assert answers["terms"].tolist() == np.where(answers["weights"] > 0, pieces, b"").tolist()
    assert answers["terms"][:, 0].all()


def test_a_mask_takes_in_the_blank_before_it(serve, roberta_tokenizer):
    """As transformers reads it."""
    _, served = serve("words alone", True, "roberta")
    batch = served.exportable.masked_text(tf.constant(["the <mask> sat"]))
    row = [0, *roberta_tokenizer.encode("the"), 4, *roberta_tokenizer.encode(" sat"), 2]
    assert batch.input_ids[0].numpy().tolist() == row
    assert whole_words(roberta_tokenizer).tolist() == ["t", "the"]


def test_words_are_tokenized_with_a_blank_before_each(serve, roberta_tokenizer):
    """As transformers does with words and add_prefix_space: here by the `tokenizers` library."""
    library = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    theirs = library.Tokenizer.from_str(roberta_tokenizer.vocabulary.decode())
    theirs.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
    texts = ["the cat  sat", "Ünïcode 漢字 🙂\ttab ", "it's 12 the", ""]
    words = [text.split() for text in texts]
    expected = [theirs.encode(row, is_pretokenized=True) for row in words]
    rows = tagged_rows([TaggedExample(row, None) for row in words], roberta_tokenizer, 32, training=False)
    _, served = serve("token classifier", True, "roberta", max_seq_length=32)
    batch = served.exportable.words(tf.constant(texts))
    for number, (row, encoding) in enumerate(zip(words, expected)):
        ids, tokens = encoding.ids[:32], range(len(encoding.ids))
        heads = [min(i for i in tokens if encoding.word_ids[i] == word) for word in range(len(row))]
        assert rows.tokens["input_ids"][number].tolist() == ids
        assert rows.heads[number].tolist() == batch.columns[number].numpy()[: len(row)].tolist() == heads
        assert batch.batch.input_ids[number].numpy()[: len(ids)].tolist() == ids
    own_blank = tagged_rows([TaggedExample([" the", "", "cat"], None)], roberta_tokenizer, 32, training=False)
    ids = [0, *roberta_tokenizer.encode(" the"), 3, *roberta_tokenizer.encode(" cat"), 2]
    assert own_blank.tokens["input_ids"][0].tolist() == ids

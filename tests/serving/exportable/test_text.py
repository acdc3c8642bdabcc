"""Strings in: edges of answers, terms and words. What is answered to texts: see the contract."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.tasks.tagging import TaggedExample, tagged_rows
from serving.exportable.samples import whole_words
from serving.exportable.spans import _without_edges
from tfrecords.answers.spans import edges

pytestmark = pytest.mark.usefixtures("eagerly")


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


def test_terms_are_the_pieces_that_weigh_something(serve, tokenizer):
    _, served = serve("pretrainer", True, max_seq_length=20)
    answers = served("sparse", text=["the cat sat", ""])
    pieces = np.array([piece.encode() for piece in tokenizer.pieces], object)[answers["ids"]]
    assert answers["terms"].tolist() == np.where(answers["weights"] > 0, pieces, b"").tolist()
    assert answers["terms"][:, 0].all()


def test_whole_words_are_pieces_of_letters(roberta_tokenizer):
    assert whole_words(roberta_tokenizer).tolist() == ["t", "the"]


def test_words_are_tokenized_with_a_blank_before_each(roberta_tokenizer):
    """As transformers does with words and add_prefix_space: here by the `tokenizers` library."""
    library = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
    theirs = library.Tokenizer.from_str(roberta_tokenizer.vocabulary.decode())
    theirs.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
    texts = ["the cat  sat", "Ünïcode 漢字 🙂\ttab ", "it's 12 the", ""]
    words = [text.split() for text in texts]
    expected = [theirs.encode(row, is_pretokenized=True) for row in words]
    rows = tagged_rows([TaggedExample(row, None) for row in words], roberta_tokenizer, 32, training=False)
    for number, (row, encoding) in enumerate(zip(words, expected)):
        ids, tokens = encoding.ids[:32], range(len(encoding.ids))
        heads = [min(i for i in tokens if encoding.word_ids[i] == word) for word in range(len(row))]
        assert rows.tokens["input_ids"][number].tolist() == ids
        assert rows.heads[number].tolist() == heads
    own_blank = tagged_rows([TaggedExample([" the", "", "cat"], None)], roberta_tokenizer, 32, training=False)
    ids = [0, *roberta_tokenizer.encode(" the"), 3, *roberta_tokenizer.encode(" cat"), 2]
    assert own_blank.tokens["input_ids"][0].tolist() == ids

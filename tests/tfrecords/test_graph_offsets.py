"""Where the graph says that a token is, Python says so too."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

from tfrecords.tokenizers.in_graph import split_words
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

ALPHABET = "abc AB é\u0301 \t\u200d2,10.ﬁ日本 \u3000ß½x\n"
TEXTS = st.lists(st.text(st.sampled_from(ALPHABET), max_size=20), min_size=1, max_size=4)


@pytest.fixture(scope="module", params=["sentencepiece", "wordpiece"])
def both(request):
    """A tokenizer and its graph with offsets."""
    if request.param == "sentencepiece":
        tokenizer = load_tokenizer(request.getfixturevalue("tiny_data").parent / "spm.model")
    else:
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abce2,10.日本x", "##b", "##c", "##e", "##0", "ab"]
        tokenizer = WordPieceTokenizer("\n".join(pieces).encode())
    graph = tokenizer.in_graph()
    function = tf.function(graph.with_offsets, autograph=False)
    return tokenizer, graph, function.get_concrete_function(tf.TensorSpec([None], tf.string))


@given(texts=TEXTS)
@example(texts=["cafe\u0301s Café", "", " 2,000, x", "a" * 201])
def test_offsets_are_those_of_the_python_tokenizer(both, texts):
    tokenizer, _, with_offsets = both
    ids, starts, ends = (part.to_list() for part in with_offsets(tf.constant(texts)))
    flat, splits, offsets = tokenizer.encode_with_offsets(texts)
    for row, text in enumerate(texts):
        own = slice(splits[row], splits[row + 1])
        assert ids[row] == flat[own].tolist()
        for start, end, (first, last) in zip(starts[row], ends[row], offsets[own].tolist()):
            # The graph leaves white space around a token out; what a user reads is the same.
            assert text[start:end].strip() == text[first:last].strip()
            assert first <= start <= end <= max(last, start)


@given(texts=st.lists(st.text(st.sampled_from("ab é\t\n 日\u00a0"), max_size=15), min_size=1, max_size=4))
def test_words_are_what_stands_between_spaces(texts):
    words, starts, ends = split_words(tf.constant(texts))
    for row, text in enumerate(texts):
        # ASCII white space alone: bytes.split() knows no other.
        expected = [word.decode() for word in text.encode().split()]
        assert [word.decode() for word in words[row].numpy()] == expected
        assert [text[a:b] for a, b in zip(starts[row].numpy(), ends[row].numpy())] == expected
    assert starts.dtype == ends.dtype == tf.int32 and np.all(ends.values >= starts.values)

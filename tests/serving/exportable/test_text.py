"""Strings in: prompts, the side at which a long text is cut; edges of answers, terms and words. See the contract."""

import logging

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import albert_tf
from albert_tf.tasks.tagging import TaggedExample, tagged_rows
from serving.exportable.samples import whole_words
from serving.exportable.spans import _without_edges
from tests.albert_tf.test_published_folders import MEAN, embedder
from tests.serving.conftest import assert_close
from tfrecords.answers.spans import edges
from tfrecords.reading.framing import Framer, encode

pytestmark = pytest.mark.usefixtures("eagerly")
TEXTS = ["the cat sat in paris where the river of france runs who is fine", "a dull film", "", "two (2) thousand mats."]
LEFT, RIGHT = np.array([True] * 4), np.array([False] * 4)


@pytest.mark.parametrize("direction", ["left", "right"])
def test_rows_are_cut_at_either_side_as_the_tokenizers_library_does(tokenizer, direction):
    ids = {piece: number for number, piece in enumerate(tokenizer.pieces)}
    library = tokenizers.Tokenizer.from_str(tokenizers.BertWordPieceTokenizer(ids).to_str())
    for length in (5, 8, 12, 40):
        library.enable_truncation(length, direction=direction)
        rows = Framer(tokenizer, length).single(encode(tokenizer, TEXTS), tf.fill([4], direction == "left"))
        assert rows.input_ids.to_list() == [one.ids for one in library.encode_batch(TEXTS)]
        # Of pairs the same, where halves come out even.
        library.enable_truncation(length + length % 2 + 1, direction=direction)
        tokens = encode(tokenizer, TEXTS), encode(tokenizer, TEXTS[::-1])
        pairs = Framer(tokenizer, length + length % 2 + 1).pair(*tokens, tf.fill([4], direction == "left"))
        assert pairs.input_ids.to_list() == [one.ids for one in library.encode_batch(list(zip(TEXTS, TEXTS[::-1])))]


def test_a_prompt_that_the_model_has_not_is_refused_with_the_names_of_its_own(serve):
    prompts = {"prompts": {"query": "who is fine : ", "document": ""}, "default_prompt_name": "query"}
    _, served = serve("cls embedder", True, max_seq_length=10, task=prompts)
    with pytest.raises(tf.errors.InvalidArgumentError, match="prompt_name must be one of query, document, or empty"):
        served("with_options", text=TEXTS, prompt_name=["query", "passage", "", ""], truncate_left=LEFT)


@pytest.mark.parametrize(
    "kind, signature, output", [("encoder", "tokens", "sequence_output"), ("pretrainer", "sparse", "weights")]
)
def test_vectors_of_tokens_and_weights_of_terms_take_options_too(serve, kind, signature, output):
    _, served = serve(kind, True, max_seq_length=10)
    default = served(signature, text=TEXTS)
    right = served(f"{signature}_with_options", text=TEXTS, truncate_left=RIGHT)
    for name in default:
        assert_array_equal(right[name], default[name])
    left = served(f"{signature}_with_options", text=TEXTS, truncate_left=LEFT)
    is_cut = right["truncated_tokens"] > 0
    assert is_cut.tolist() == [True, False, False, False] and left["lengths"].tolist() == right["lengths"].tolist()
    assert_close(left[output][1:, :8], right[output][1:, :8])
    assert np.abs(left[output][0, :8] - right[output][0, :8]).max() > 1e-3


def test_prompts_that_pooling_leaves_out_cannot_be_asked_for(tmp_path, caplog):
    settings = {"config_sentence_transformers.json": {"prompts": {"query": "query : ", "document": ""}}}
    for include, names in ((True, ["query", "document"]), (False, ["document"])):
        with caplog.at_level(logging.WARNING):
            folder = embedder(tmp_path / str(include), ("Pooling", MEAN | {"include_prompt": include}), **settings)
            assert list(albert_tf.load(folder).task["prompts"]) == names
        assert ("cannot ask for the prompts" in caplog.text) != include


def test_words_for_masks_have_ids_and_are_read_as_text(serve, tokenizer_of):
    tokenizer = tokenizer_of("sentencepiece")
    _, served = serve("pretrainer", True, "sentencepiece", max_seq_length=20)
    found = served("fill_mask", text=[b"the [MASK] sat in [MASK]", b"a [MASK]"])
    assert found["ids"].shape == found["texts"].shape == found["pieces"].shape == (2, 2, 5)
    present = found["pieces"] != b""
    pieces = [tokenizer.pieces[number].encode() for number in found["ids"][present]]
    assert found["pieces"][present].tolist() == pieces and present[1].tolist() == [[True] * 5, [False] * 5]
    texts = [piece.decode().replace("▁", " ").removeprefix(" ").encode() for piece in pieces]
    assert found["texts"][present].tolist() == texts
    assert set(found["ids"][~present]) == {0} and set(found["texts"][~present]) == {b""}


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
    theirs = tokenizers.Tokenizer.from_str(roberta_tokenizer.vocabulary.decode())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
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

"""What a request may ask besides: a prompt, and the side at which a long text is cut; and ids read as text."""

import logging

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from numpy.testing import assert_array_equal

import albert_tf
from tests.albert_tf.test_published_folders import MEAN, embedder
from tests.serving.conftest import assert_close
from tfrecords.reading.framing import Framer, encode

pytestmark = pytest.mark.usefixtures("eagerly")
TEXTS = ["the cat sat in paris where the river of france runs who is fine", "a dull film", "", "two (2) thousand mats."]
LEFT, RIGHT = np.array([True] * 4), np.array([False] * 4)


def theirs(tokenizer):
    """The same vocabulary in the tokenizers library."""
    ids = {piece: number for number, piece in enumerate(tokenizer.pieces)}
    return tokenizers.Tokenizer.from_str(tokenizers.BertWordPieceTokenizer(ids).to_str())


@pytest.mark.parametrize("direction", ["left", "right"])
def test_rows_are_cut_at_either_side_as_the_tokenizers_library_does(tokenizer, direction):
    library = theirs(tokenizer)
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

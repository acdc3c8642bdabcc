# ruff: noqa: RUF001
"""Where tokens come from: offsets into the raw text, for both tokenizers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

texts = st.text(
    st.one_of(st.sampled_from(" ,.019aAéß中，''``\0\u0301\u200bΣİﬁÅ½\u3000"), st.characters(codec="utf-8")), max_size=40
)


@pytest.fixture(scope="module")
def wordpiece():
    pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] ca ##fe ##s a ##a b . 中 国 , 1 ##9"
    return WordPieceTokenizer("".join(f"{piece}\n" for piece in pieces.split()).encode())


@pytest.fixture(params=["sentencepiece", "wordpiece"])
def any_tokenizer(request, tokenizer, wordpiece):
    return tokenizer if request.param == "sentencepiece" else wordpiece


@given(batch=st.lists(texts, max_size=4))
def test_ids_are_those_of_encode_and_offsets_never_go_back(tokenizer, wordpiece, batch):
    for one in (tokenizer, wordpiece):
        ids, splits, offsets = one.encode_with_offsets(batch)
        expected_ids, expected_splits = one.encode_batch(batch)
        np.testing.assert_array_equal(ids, expected_ids)
        np.testing.assert_array_equal(splits, expected_splits)
        assert offsets.shape == (len(ids), 2)
        for text, first, last in zip(batch, splits[:-1], splits[1:]):
            of_text = offsets[first:last]
            assert np.all(np.diff(of_text, axis=0) >= 0) and np.all(of_text[:, 0] <= of_text[:, 1])
            if len(of_text):
                assert of_text[0, 0] >= 0 and of_text[-1, 1] <= len(text)


@given(text=texts)
def test_what_no_token_covers_is_no_text(tokenizer, wordpiece, text):
    for one in (tokenizer, wordpiece):
        offsets = one.encode_with_offsets([text])[2]
        covered = np.zeros(len(text), bool)
        for begin, end in offsets:
            covered[begin:end] = True
        left = "".join(character for character, is_covered in zip(text, covered) if not is_covered)
        assert one.encode(left) == []


def test_wordpiece_offsets_by_hand(wordpiece):
    def parts(text):
        return [text[begin:end] for begin, end in wordpiece.encode_with_offsets([text])[2]]

    assert parts(" Cafe\u0301s, 中国.") == ["Ca", "fe\u0301", "s", ",", "中", "国", "."]
    assert parts("aa xyz\u200b b") == ["a", "a", "xyz\u200b", "b"]
    assert parts("b " + "a" * 300) == ["b", "a" * 300]


def test_sentencepiece_offsets_by_hand(tokenizer):
    text = "  the ﬁne  Ünited ½"
    offsets = tokenizer.encode_with_offsets([text])[2]
    pieces = [text[begin:end] for begin, end in offsets]
    assert "".join(pieces) == text[2:]
    assert pieces[0] == "the" and pieces[-1].endswith("½")
    assert all(begin <= end for begin, end in offsets)


def test_a_comma_after_a_digit_is_the_last_character(shared):
    from tfrecords.tokenizers.loading import load_tokenizer

    tokenizer = load_tokenizer(shared / "data" / "spm" / "30k-clean.model")
    text = "In  2010, and ５, 19,"
    ids, _, offsets = tokenizer.encode_with_offsets([text])
    pieces = [text[begin:end] for begin, end in offsets]
    assert [piece.strip() for piece in pieces] == ["In", "2010", ",", "and", "５", ",", "19", ","]
    assert [tokenizer.id_to_piece(token) for token in ids] == ["▁in", "▁2010", ",", "▁and", "▁5", ",", "▁19", ","]

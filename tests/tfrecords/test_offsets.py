# ruff: noqa: RUF001
"""Where tokens come from: offsets into the raw text, for both tokenizers."""

import numpy as np
from hypothesis import given

from tests.tfrecords.tokenizers import twins
from tests.tfrecords.tokenizers.twins import texts
from tfrecords.tokenizers.loading import load_tokenizer

WORDPIECE = twins.wordpiece("ca", "##fe", "##s", "a", "##a", "b", ".", "中", "国", ",", "1", "##9")


@given(text=texts)
def test_what_no_token_covers_is_no_text(tokenizer, text):
    for one in (tokenizer, WORDPIECE):
        offsets = one.encode_with_offsets([text])[2]
        covered = np.zeros(len(text), bool)
        for begin, end in offsets:
            covered[begin:end] = True
        left = "".join(character for character, is_covered in zip(text, covered) if not is_covered)
        assert one.encode(left) == []


def test_a_comma_after_a_digit_is_the_last_character(shared):
    tokenizer = load_tokenizer(shared / "data" / "spm" / "30k-clean.model")
    text = "In  2010, and ５, 19,"
    ids, _, offsets = tokenizer.encode_with_offsets([text])
    pieces = [text[begin:end] for begin, end in offsets]
    assert [piece.strip() for piece in pieces] == ["In", "2010", ",", "and", "５", ",", "19", ","]
    assert [tokenizer.id_to_piece(token) for token in ids] == ["▁in", "▁2010", ",", "▁and", "▁5", ",", "▁19", ","]

# ruff: noqa: RUF001
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tests.tfrecords.tokenizers.twins import split_rows
from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer
from tfrecords.tokenizers.unigram import can_segment

# What the rules are about, letters that many pieces begin with, and any other character but white space.
letters = st.one_of(st.sampled_from("aeinrst,.09(-–£''``\0\u0301ΣﬁÅ▁中"), st.characters(codec="utf-8"))
words = st.text(letters, max_size=60).map(lambda text: "".join(text.split()))


def assert_as_the_library(tokenizer, texts):
    assert split_rows(*tokenizer._segmenter.encode(texts)) == split_rows(*tokenizer._library.encode_batch(texts))


@given(st.lists(words, max_size=4))
def test_a_word_has_the_ids_that_the_library_gives_it(tokenizer, batch):
    assert_as_the_library(tokenizer, batch)


def test_ties_fall_as_in_the_library_and_words_of_a_corpus_are_the_same(tokenizer, corpus_lines):
    """Runs of one character have many segmentations of equal score; a symbol before them changes the rounding."""
    runs = [unit * count for unit in "01aex-" for count in range(2, 24)]
    texts = {
        before + run + after for before in ("", "'", "-", "(", "3.14", "x.") for run in runs for after in ("", ".5")
    }
    assert_as_the_library(tokenizer, sorted(texts.union(*(line.split() for line in corpus_lines))))


@given(st.lists(st.lists(words, max_size=5), max_size=3))
def test_a_text_has_the_ids_of_its_words(tokenizer, batch):
    of_words = [[token for word in row for token in tokenizer.encode(word)] for row in batch]
    assert split_rows(*tokenizer.encode_batch([" \t ".join(row) for row in batch])) == of_words


def test_ids_stay_when_the_cache_begins_anew(tokenizer):
    texts = [str(number * 7919) for number in range(150_000)]
    first = tokenizer.encode_batch(texts[:1000])[0]
    tokenizer.encode_batch(texts)
    assert tokenizer._segmenter._records[1] < len(texts)
    assert np.array_equal(tokenizer.encode_batch(texts[:1000])[0], first)
    assert_as_the_library(tokenizer, texts[-1000:])


def test_threads_share_a_tokenizer(corpus_lines, tokenizer):
    expected = tokenizer.encode_batch(corpus_lines)[0]
    shared = SentencePieceTokenizer(tokenizer.vocabulary)
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(ids, expected) for ids, _ in pool.map(shared.encode_batch, [corpus_lines] * 8))


def test_an_unknown_piece_costs_more_than_any_known_one(tokenizer):
    # Unknown characters side by side are one token; a word boundary parts them.
    unknown = tokenizer.unk_id
    assert tokenizer.encode("中文 中") == tokenizer._library.encode_batch(["中文 中"])[0].tolist()
    assert tokenizer.encode("中文 中").count(unknown) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda proto: proto.pieces.add(piece="▁of▁the", score=-1.0),
        lambda proto: setattr(proto.trainer_spec, "treat_whitespace_as_suffix", True),
        lambda proto: setattr(proto.trainer_spec, "byte_fallback", True),
        # Normalisation would make it a small letter; SentencePiece keeps it.
        lambda proto: proto.pieces.add(piece="Å", score=0.0, type=model_pb2.ModelProto.SentencePiece.USER_DEFINED),
        lambda proto: setattr(next(piece for piece in proto.pieces if piece.piece == "▁"), "piece", "▁▁"),
    ],
    ids=["piece over a space", "suffix", "bytes", "symbol", "no boundary"],
)
def test_models_whose_words_are_not_apart_are_left_to_the_library(tokenizer, change):
    proto = model_pb2.ModelProto.FromString(tokenizer.vocabulary)
    assert can_segment(proto)
    change(proto)
    assert not can_segment(proto)

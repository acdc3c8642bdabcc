"""A vocabulary is as large as asked, or as large as the text allows, or the error says which size would do."""

import re

from tests.refusals import refused
from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer
from tfrecords.tokenizers.vocabularies.training import train_tokenizer

LINES = ["the quick brown fox jumps over the lazy dog", "pack my box with five dozen jugs, pack them well"] * 20


def size(**settings):
    return SentencePieceTokenizer(train_tokenizer(LINES, **settings)).vocab_size


def test_the_error_names_a_size_that_works():
    with refused(r"--vocab_size=5000; set it to (\d+) or less") as error:
        size(vocab_size=5000)
    limit = int(re.search(r"set it to (\d+)", str(error.value))[1])
    assert size(vocab_size=limit) == limit


def test_without_the_hard_limit_the_text_decides():
    most = size(vocab_size=5000, hard_vocab_limit=False)
    assert 41 < most < 100
    assert size(vocab_size=most - 1, hard_vocab_limit=False) == most - 1


def test_more_characters_than_pieces():
    with refused(r"--vocab_size=32 has no room for the corpus's \d+ characters"):
        size(vocab_size=32)


def test_long_lines_are_trained_on_too():
    long = " ".join(LINES * 5)
    assert len(long) > 4500
    for lines, word in (([*LINES, long + " quagga" * 50], "quagga"), ([long] * 3, "the")):
        model = train_tokenizer(lines, vocab_size=60, hard_vocab_limit=False)
        assert word in "".join(SentencePieceTokenizer(model).pieces)

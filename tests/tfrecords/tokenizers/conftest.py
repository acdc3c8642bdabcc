"""Small tokenizers that more than one file tries."""

import pytest

from tests.tfrecords.tokenizers.twins import wordpiece
from tfrecords.tokenizers.bytes.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer
from tfrecords.tokenizers.vocabularies.training import train_tokenizer


@pytest.fixture(scope="session")
def bpe(bpe_of_corpus):
    return ByteBPETokenizer(bpe_of_corpus)


@pytest.fixture(scope="session")
def german_tokenizer():
    words = ["schöne", "schon", "Grüße", "über", "für", "die", "Straße", "Käse", "Vögel", "fährt", "früh", "größer"]
    lines = [" ".join(words[(i * step) % len(words)] for i in range(12)) for step in range(1, 60)]
    return SentencePieceTokenizer(train_tokenizer(lines, 80, hard_vocab_limit=False, keep_accents=True))


@pytest.fixture(scope="session")
def small_wordpiece():
    letters = "abcdefghijklmnopqrstuvwxyz0123456789,.，中标'`"  # noqa: RUF001
    return wordpiece(*letters, *("##" + letter for letter in letters[:26]), "the", "un", "##ed", "want")

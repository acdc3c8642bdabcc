"""Vocabularies of the pieces that a text uses: the same ids for it, and no text that could not be written before."""

import numpy as np
from numpy.testing import assert_array_equal

from tests.refusals import refused
from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer
from tfrecords.tokenizers.vocabularies.pruning import pieces_within, prune_tokenizer
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

WORDS = ["the", "a", "film", "was", "dull", "fine", "##ly", "##ing", "act"]
LETTERS = [*"abcdefghijklmnopqrstuvwxyz,0123456789", *(f"##{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")]
PIECES = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *LETTERS, "中", "##中", "dog"]
TEXTS = ["the film was finely dull", "a fine act"]


def counts(tokenizer, texts):
    return np.bincount(tokenizer.encode_batch(texts)[0], minlength=tokenizer.vocab_size)


def check(tokenizer, texts):
    small, kept = prune_tokenizer(tokenizer, counts(tokenizer, texts))
    assert [tokenizer.pieces[number] for number in kept] == small.pieces and len(kept) < tokenizer.vocab_size
    assert_array_equal(kept[small.encode_batch(texts)[0]], tokenizer.encode_batch(texts)[0])
    assert_array_equal(pieces_within(small, tokenizer), kept)
    assert pieces_within(tokenizer, small) is None
    for role in ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id"):
        assert kept[getattr(small, role)] == getattr(tokenizer, role)
    in_graph = small.in_graph()(texts).flat_values.numpy()
    assert_array_equal(in_graph, small.encode_batch(texts)[0])
    return small, kept


def test_the_most_frequent_stay():
    tokenizer = WordPieceTokenizer("\n".join(PIECES).encode())
    found = counts(tokenizer, [*TEXTS, "fine", "fine"])
    small, kept = prune_tokenizer(tokenizer, found, 50)
    assert len(kept) == small.vocab_size == 50
    assert "fine" in small.pieces and "act" not in small.pieces
    with refused("a vocabulary of 10 pieces has no room"):
        prune_tokenizer(tokenizer, found, 10)


def test_sentencepiece_keeps_what_occurs(tokenizer):
    small, _ = check(tokenizer, ["the value of an object is 1,000", "a class has methods."])
    assert small.decode(small.encode("the class of values")) == "the class of values"


def test_published_alberts_vocabulary(shared):
    tokenizer = SentencePieceTokenizer((shared / "data/spm/30k-clean.model").read_bytes())
    check(tokenizer, ["A good film (of 2,019), isn't it?", "Yes."])


def test_bpe_keeps_what_occurs_and_what_it_is_merged_of(bpe):
    used = ["The value of a class is 1,000; it returns é 中 \n the values", " classes that return values"]
    small, _ = check(bpe, used)
    assert small.rules.roles == bpe.rules.roles
    # Every byte can still be written.
    text = bytes(range(1, 128)).decode() + "日本 👍"
    assert small.decode(small.encode(text)) == text


def test_texts_of_kept_pieces_have_the_pieces_that_they_had(bpe, corpus_lines):
    small, kept = prune_tokenizer(bpe, counts(bpe, corpus_lines[:40]))
    same = [line for line in corpus_lines[:2000] if set(bpe.encode(line)) <= set(kept.tolist())]
    assert len(same) > 100 and len(kept) < bpe.vocab_size
    assert_array_equal(kept[small.encode_batch(same)[0]], bpe.encode_batch(same)[0])
    others = [line for line in corpus_lines[:400] if line not in same]
    assert [small.decode(small.encode(line)) for line in others] == [bpe.decode(bpe.encode(line)) for line in others]


def test_a_size_has_room_for_whole_derivations(bpe):
    found = np.zeros(bpe.vocab_size, int)
    longest = max(bpe.merged_of, key=lambda number: len(bpe.piece_bytes[number]))
    found[longest] = 5
    small, kept = prune_tokenizer(bpe, found)
    needed = len(kept)
    assert longest in kept and small.encode(bpe.decode([longest])) == [kept.tolist().index(longest)]
    small, kept = prune_tokenizer(bpe, found, needed - 1)
    assert longest not in kept
    with refused("a vocabulary of 100 pieces has no room"):
        prune_tokenizer(bpe, found, 100)

"""The light runtime's libraries give the ids and places of our tokenizers, from the file that an export writes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from serving.lite.texts import LiteTokenizer
from serving.litert.tokenizer_file import write_tokenizer
from tests.refusals import refused
from tests.tfrecords.tokenizers.test_special_strings import tokenizer_file
from tests.tfrecords.tokenizers.test_xlm import LINES
from tests.tfrecords.tokenizers.twins import HARD_TEXTS, texts
from tfrecords.base.columns import whole_characters
from tfrecords.tokenizers.by_library import AddedToken, tokenize_beginnings
from tfrecords.tokenizers.bytes.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.sentencepiece import SentencePieceTokenizer
from tfrecords.tokenizers.unigram_file import shifted
from tfrecords.tokenizers.vocabularies.training import train_tokenizer
from tfrecords.tokenizers.wordpiece import LIBRARY_RULES, WordPieceRules, WordPieceTokenizer

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "un", "##ed", "want", "film", "é", "中", "ß", "[E1]"),
    *("t", "##h", "##e", "f", "##i", "##l", "##m", "2", ",", "[", "]"),
]
WORDS = "\n".join(PIECES).encode() + b"\n"
# Signs of other classes in google-research/bert than in the library, private ones, and names of markers.
ODD = ["a\ue000b", "the\u061dfilm", "\u166d film", "a\U0002b820b", "\ua7cb", "x [SEP] the", "<mask> <s>[CLS]"]
ODD += ["the [E1]x", "fi\u0301lm\u0301 ,\u0301"]


@pytest.fixture(scope="module")
def model():
    return train_tokenizer(LINES * 3, 900, hard_vocab_limit=False)


MADE = {
    "BERT": lambda model: WordPieceTokenizer(WORDS),
    "cased BERT": lambda model: WordPieceTokenizer(WORDS, lower_case=False).with_rules(["lowers_first"]),
    "BERT of the library": lambda model: WordPieceTokenizer(WORDS, rules=LIBRARY_RULES),
    "BERT with added tokens": lambda model: WordPieceTokenizer(
        WORDS, rules=WordPieceRules(True, longest_word=5, added=(AddedToken("[E1]", 13, True),))
    ),
    "ALBERT": lambda model: SentencePieceTokenizer(model),
    "XLM-RoBERTa": lambda model: SentencePieceTokenizer(shifted(model, ("<s>", "<pad>", "</s>", "<unk>"))),
    "RoBERTa": lambda model: ByteBPETokenizer(tokenizer_file(False, True, True)),
    "RoBERTa with a first blank": lambda model: ByteBPETokenizer(tokenizer_file(True, True, True)),
}


@pytest.fixture(scope="module", params=MADE)
def two(request, model, tmp_path_factory):
    """A tokenizer, and the light one of its file."""
    tokenizer, folder = MADE[request.param](model), tmp_path_factory.mktemp("tokenizer")
    rules = write_tokenizer(folder, tokenizer, with_offsets=True)
    return tokenizer, LiteTokenizer(rules, (folder / rules.file).read_bytes())


def assert_equal(two, batch):
    batch = whole_characters(list(batch))
    for ours, theirs in zip(*(one.encode_with_offsets(batch) for one in two), strict=True):
        assert_array_equal(ours, theirs)
    assert_array_equal(two[1].encode_batch(batch)[0], two[0].encode_batch(batch)[0])


def test_hard_texts(two):
    assert_equal(two, HARD_TEXTS + ODD + LINES)
    pieces = [one.id_to_piece(number) for one in two for number in range(two[0].vocab_size)]
    assert pieces[: two[0].vocab_size] == pieces[two[0].vocab_size :]


@settings(max_examples=20)
@given(batch=st.lists(texts | st.sampled_from(ODD), max_size=6))
def test_any_text(two, batch):
    assert_equal(two, batch)


def test_a_tokenizer_with_other_ids_there_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(
        LiteTokenizer, "encode_batch", lambda self, lines: self._library.encode_batch(map(str.upper, lines))
    )
    with refused(r"the ids of '.*' are \[.*\] in the light runtime, \[.*\] in this wordpiece tok"):
        write_tokenizer(tmp_path, WordPieceTokenizer(WORDS, lower_case=False))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "the " * 1500,
        "x" * 5000 + " film",
        " " * 3000 + "film",
        "\u200b" * 3000 + "film",
        "film \n" * 1000,
        "中" * 3000,
        "x" * 2200 + " " + "x" * 2200 + " the" * 9,
    ],
    ids=lambda text: ascii(text[:3]),
)
def test_the_beginning_of_a_text_has_its_first_tokens(two, text, monkeypatch):
    monkeypatch.setattr("tfrecords.tokenizers.by_library._CHARACTERS", 2**10)
    for one in two:
        whole, (ids, splits) = (
            one.encode_batch([text, "film"]),
            tokenize_beginnings(one.encode_batch, [text, "film"], 9),
        )
        assert_array_equal(ids[: splits[1]][:9], whole[0][: whole[1][1]][:9])
        assert len(ids) - splits[1] == len(whole[0]) - whole[1][1]

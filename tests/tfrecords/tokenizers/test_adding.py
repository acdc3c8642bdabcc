"""Words added to a vocabulary, and what each of its pieces was in the former one: one contract for all kinds."""

import functools

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sentencepiece import sentencepiece_model_pb2 as model_pb2

from tests.refusals import refused
from tfrecords.tokenizers.loading import load_tokenizer
from tfrecords.tokenizers.vocabularies.adding import add_words, frequent_words
from tfrecords.tokenizers.vocabularies.comparing import carry_over, difference
from tfrecords.tokenizers.vocabularies.training import train_bpe, train_tokenizer
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer
from tfrecords.train_tokenizer import TokenizerSettings, main

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PIECES = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "the", "hepat", "##itis"]
# The last two are nested, the last in the one before; a word of letters that BERT's vocabulary has no piece for.
WORDS = ["hepatitis", "Nephrology", "dermatitisform", "dermatitis"]
KINDS = ("wordpiece", "sentencepiece", "bpe")


@pytest.fixture(scope="module")
def former_of(tokenizer, request):
    """Makes the former tokenizer of a kind."""

    @functools.cache
    def make(kind):
        if kind == "wordpiece":
            return WordPieceTokenizer(
                "\n".join([*PIECES, *LETTERS, *(f"##{one}" for one in LETTERS), ",", ""]).encode()
            )
        if kind == "sentencepiece":
            return tokenizer
        return request.getfixturevalue("bpe")

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_each_added_word_becomes_one_piece_that_begins_as_its_former_pieces(former_of, kind, tmp_path):
    former = former_of(kind)
    larger = add_words(former, [*WORDS, "the"])
    spaced = [larger.word_prefix + word for word in WORDS]
    ids, splits = larger.encode_batch(spaced)
    assert_array_equal(np.diff(splits), 1)
    texts = ["the hepatitis, the dermatitis of dermatitisform nephrology"]
    assert_array_equal(larger.in_graph()(texts).flat_values.numpy(), larger.encode_batch(texts)[0])
    assert larger.lower_case == former.lower_case and (set(ids.tolist()) & set(larger.special_ids.tolist())) == set()
    # All other pieces keep their ids.
    changed = [n for n, piece in enumerate(former.pieces) if larger.pieces[n] != piece]
    assert [former.pieces[number] for number in changed] == ["[unused0]", "[unused1]"] * (kind == "wordpiece")
    carried = carry_over(larger, former)
    for word, number in zip(spaced, ids):
        parts = carried.ids[carried.row_splits[number] : carried.row_splits[number + 1]]
        assert parts.tolist() == former.encode(word) and len(parts) > 1
    counts = (carried.kept, carried.new, carried.dropped)
    assert counts == (
        former.vocab_size - len(changed),
        larger.vocab_size - former.vocab_size + len(changed),
        len(changed),
    )
    same = carried.row_splits[:-1][np.diff(carried.row_splits) == 1]
    assert set(range(former.vocab_size)) - set(changed) <= set(carried.ids[same].tolist())
    larger.save(tmp_path / "larger")
    assert load_tokenizer(tmp_path / "larger").sha256 == larger.sha256
    assert str(carry_over(former, larger)).endswith(f"{carried.new:,} dropped")


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_inside_words_begin_as_what_stands_there(former_of, kind, corpus_lines):
    former = former_of(kind)
    vocabulary = {
        "wordpiece": lambda: former.vocabulary + b"##zyxwvu\n",
        "sentencepiece": lambda: train_tokenizer(corpus_lines[:300], 400),
        "bpe": lambda: train_bpe(corpus_lines[:300], 600),
    }[kind]
    other = type(former)(vocabulary())
    carried = carry_over(other, former)
    parts = np.split(carried.ids, carried.row_splits[1:-1])
    assert max(map(len, parts)) > 1
    for number in set(range(other.vocab_size)) - set(other.special_ids.tolist()):
        found, piece = [former.pieces[one] for one in parts[number]], other.pieces[number]
        assert "".join(one.removeprefix("##") for one in found) == piece.removeprefix("##")
        assert {one.startswith("##") for one in found} == {piece.startswith("##")}


@pytest.mark.parametrize("kind", KINDS)
def test_the_words_that_a_text_has_cut_most_are_found(former_of, kind):
    former = former_of(kind)
    lines = ["the dermatitis, the hepatology", "The dermatitis. hepatology dermatitis 1,5 x7 covid19 covid19"] * 3
    found = [word.lower() for word in frequent_words(former, lines, 2)]
    assert found == ["dermatitis", "hepatology"]
    assert frequent_words(former, [], 5) == []


@pytest.mark.parametrize("kind", KINDS)
def test_words_that_are_always_parted_are_named(former_of, kind):
    # SentencePiece's pieces may hold signs.
    parted = ["covid-19", "heart attack"][kind == "sentencepiece" :]
    message = f"parts {len(parted)} of the words, whatever its pieces are: {', '.join(map(repr, parted))}; "
    with refused(message):
        add_words(former_of(kind), ["hepatitis", "covid-19", "heart attack"])


def test_other_kinds_are_refused(former_of):
    with refused("of kind wordpiece cannot take over the pieces of one of kind sentencepiece"):
        carry_over(former_of("wordpiece"), former_of("sentencepiece"))


def test_special_pieces_go_by_their_role_wherever_they_stand(former_of):
    former = former_of("wordpiece")
    moved = WordPieceTokenizer("\n".join([*former.pieces[5::-1], *former.pieces[6:]]).encode())
    carried = carry_over(moved, former)
    for role in ("cls", "sep", "mask", "pad", "unk"):
        assert carried.ids[getattr(moved, f"{role}_id")] == getattr(former, f"{role}_id")
    assert difference(moved, former) == "[CLS] has the id 2, not 3"


@pytest.mark.parametrize("kind", KINDS)
def test_differences_are_named(former_of, kind):
    former = former_of(kind)
    larger = add_words(former, WORDS)
    assert difference(larger, former) == f"{larger.vocab_size:,} pieces, not {former.vocab_size:,}"
    assert difference(former_of(KINDS[KINDS.index(kind) - 1]), former).startswith("kind ")
    if kind == "wordpiece":
        cased = WordPieceTokenizer(former.vocabulary, lower_case=False)
        assert difference(cased, former) == "lower_case is False, not True"
        other = WordPieceTokenizer(former.vocabulary.replace(b"hepat\n", b"liver\n"))
        assert difference(other, former) == "piece 8 is 'liver', not 'hepat'"
    if kind == "sentencepiece":
        proto = model_pb2.ModelProto.FromString(former.vocabulary)
        proto.normalizer_spec.precompiled_charsmap = b""
        other = type(former)(proto.SerializeToString(), former.lower_case, keep_accents=former.keep_accents)
        assert difference(other, former) == "other ids of the text 'The Dog'"


def add(**flags):
    main(TokenizerSettings(**flags))


def test_the_command_adds_words_of_a_file_or_of_a_text(tmp_path, former_of, corpus_file, capsys):
    former_of("wordpiece").save(tmp_path / "former")
    (tmp_path / "words.txt").write_text("Hepatitis\n\nthe\n dermatitis \n")
    flags = {"add_to": str(tmp_path / "former"), "output_prefix": str(tmp_path / "larger")}
    add(words=str(tmp_path / "words.txt"), **flags)
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path}/larger: 63 pieces, 2 of them new, in place of 63")
    assert load_tokenizer(tmp_path / "larger").pieces[6] == "dermatitis"
    with refused("is a folder that holds files; name a new one"):
        add(words=str(tmp_path / "words.txt"), **flags)
    flags["output_prefix"] = str(tmp_path / "learned")
    add(input=str(corpus_file), max_words=30, **flags)
    assert load_tokenizer(tmp_path / "learned").vocab_size == 63 + 28


@pytest.mark.parametrize(
    "flags, said",
    [
        ({}, r"give --input=FILES with the text$"),
        ({"add_to": "a"}, "or --words=FILE with the words"),
        ({"add_to": "a", "input": "b", "words": "c"}, "or --words=FILE with the words"),
        ({"words": "c"}, r"--words=c needs --add_to=TOKENIZER"),
        ({"add_to": "a", "input": "b", "vocab_size": 99}, "--vocab_size=99 is for a vocabulary to train; leave it out"),
        ({"add_to": "nowhere", "input": "b"}, "tokenizer 'nowhere' does not exist"),
    ],
)
def test_flags_that_do_not_go_together_are_named(tmp_path, flags, said):
    with refused(said):
        add(output_prefix=str(tmp_path / "larger"), **flags)

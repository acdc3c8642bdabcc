"""Byte-level BPE: Python's ids and offsets are those of the `tokenizers` library, and the graph's are Python's."""

import inspect
import json
import random
import shutil
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.refusals import refused
from tests.tfrecords.tokenizers.other_files import pre_tokenizers, processors, tokenizers
from tests.tfrecords.tokenizers.twins import (
    HARD_TEXTS,
    assert_as_the_library,
    assert_stays_the_same,
    assert_twins,
    changed,
    rows_of,
    texts,
    their_ids,
    theirs_of,
)
from tfrecords.tokenizers.bytes.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.bytes.byte_bpe_file import byte_characters
from tfrecords.tokenizers.folders.other_files import GPT2_PATTERN
from tfrecords.tokenizers.loading import load_tokenizer, tokenizer_in
from tfrecords.tokenizers.unicode_classes import LETTER, NUMBER, SPACE, class_table, ranges
from tfrecords.tokenizers.vocabularies.training import BPE_SPECIAL, train_bpe

LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SPLIT = {"type": "Split", "pattern": {"Regex": GPT2_PATTERN}, "behavior": "Isolated", "invert": False}


def after(step):
    """A pre_tokenizer that has this step before that of the bytes."""
    return {"type": "Sequence", "pretokenizers": [step, LEVEL | {"use_regex": False}]}


@pytest.fixture(scope="module")
def theirs(bpe_of_corpus):
    return theirs_of(bpe_of_corpus)


def test_hard_texts_prose_and_code(bpe, theirs, corpus_lines):
    code = [inspect.getsource(module) for module in (json, random)]
    assert_as_the_library(bpe, theirs, HARD_TEXTS + corpus_lines[:1500:3] + code)
    for text in HARD_TEXTS:
        assert bpe.decode(bpe.encode(text)) == text
    # Half a pair is what Python puts for a wrong byte.
    assert bpe.encode("a\ud800b") == bpe.encode("a\ufffdb")


@given(st.lists(texts, max_size=6))
def test_any_text(bpe, theirs, batch):
    assert_as_the_library(bpe, theirs, batch)


def test_the_kinds_of_all_characters_are_the_librarys():
    rng = random.Random(3)
    edges = {edge for kind in (LETTER, NUMBER, SPACE) for pair in ranges(kind) for edge in pair}
    codes = {edge + off for edge in edges for off in (-1, 0, 1)} | {rng.randrange(0x110000) for _ in range(2000)}
    codes = sorted(code for code in codes if 0 <= code < 0xD800 or 0xE000 <= code < 0x110000)
    if tokenizers.__version__ < "0.22":  # It knows an older Unicode.
        codes = [code for code in codes if unicodedata.category(chr(code)) != "Cn"]
    for kind, pattern in ((LETTER, r"\p{L}"), (NUMBER, r"\p{N}"), (SPACE, r"\s")):
        split = pre_tokenizers.Split(tokenizers.Regex(pattern), "removed")
        found = split.pre_tokenize_str("".join(map(chr, codes)))
        others = {ord(character) for part, _ in found for character in part}
        assert others == {code for code in codes if class_table()[code] != kind}


def test_what_is_known_of_the_published_vocabulary(tmp_path):
    """ "Hello world!" and " Hello world" have these ids in roberta-base; gaps stand for the rest of its pieces."""
    known = {"Hello": 31414, "Ġworld": 232, "ĠHello": 20920, "!": 328, "Ġ": 1437, "<mask>": 50264}
    merges = ["H e", "He l", "Hel l", "Hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld", "Ġ Hello"]
    vocabulary = json.loads(hand_made(merges))["model"]["vocab"]
    ids = {piece: known.get(piece, number + 40_000 * (number > 3)) for piece, number in vocabulary.items()}
    (tmp_path / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.vocab_size) == (0, 2, 50264, 50265)
    batch = ["Hello world!", " Hello world", "  Hello\n", "hell"]
    assert [tokenizer.encode(text) for text in batch[:2]] == [[31414, 232, 328], [20920, 232]]
    assert_as_the_library(tokenizer, theirs_of(tokenizer.vocabulary), batch)
    framed = theirs_of(tokenizer.vocabulary, without_added=False)
    assert framed.encode("Hello world!").ids == [0, 31414, 232, 328, 2]
    assert framed.encode("Hello", "!").ids == [0, 31414, 2, 2, 328, 2]
    assert (tokenizer.separators_between, tokenizer.second_segment_id) == (2, 0)


def hand_made(merges, extra=()):
    """A tokenizer.json of these merges."""
    pieces = [*BPE_SPECIAL, *byte_characters(), *(merge.replace(" ", "") for merge in merges), *extra]
    ids = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ids, [tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    tokenizer.add_special_tokens(BPE_SPECIAL)
    return tokenizer.to_str().encode()


# SentencePiece merges any two parts that make a piece, the library those that a merge names.
# Each example makes a tokenizer and a graph.
@settings(max_examples=25)
@given(st.data())
def test_any_merges(data):
    known, merges = list("abc"), []
    for _ in range(data.draw(st.integers(1, 12))):
        left, right = data.draw(st.sampled_from(known)), data.draw(st.sampled_from(known))
        merges.append(f"{left} {right}")
        known.append(left + right)
    file = hand_made(data.draw(st.permutations(merges)))
    batch = data.draw(st.lists(st.text("abc", max_size=12), max_size=20))
    assert_as_the_library(ByteBPETokenizer(file), theirs_of(file), batch)


def test_pieces_that_no_text_gives_are_special():
    tokenizer = ByteBPETokenizer(hand_made(["b c", "a b", "ab c"], extra=["madeupword0000", "lost"]))
    lost = {tokenizer.pieces[i] for i in tokenizer.special_ids}
    assert lost == {*BPE_SPECIAL, "abc", "madeupword0000", "lost"}


def token(number, content, **flags):
    usual = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    return {"id": number, "content": content} | usual | flags


def test_runs_of_blanks_as_tokens_and_composition_as_modernbert_has_them(bpe_of_corpus):
    size = len(json.loads(bpe_of_corpus)["model"]["vocab"])
    added = [token(size + n, text, normalized=True) for n, text in enumerate(["  ", "   ", " " * 6, "a  b"])]
    file = changed(bpe_of_corpus, added_tokens=added, normalizer={"type": "NFC"}, post_processor=None)
    tokenizer, theirs = ByteBPETokenizer(file), theirs_of(file, without_added=False)
    assert tokenizer.special_ids.tolist() == [0, 1, 2, 3, 4]
    parted = ["a\u030a\u0301 n\u0303o ᄒ" + "ᅡᆫ" + " \u0301"]
    blanks = ["if x:\n" + " " * 17 + "a  b   c", "a  b" * 3]
    composed = [text for text in HARD_TEXTS if "\u0301" not in text and "ᅡ" not in text]
    assert_as_the_library(tokenizer, theirs, composed + blanks)
    batch = HARD_TEXTS + parted
    assert [ids for ids, _ in rows_of(tokenizer, batch)] == their_ids(theirs, batch)
    assert_twins(tokenizer, batch)
    # The library has of characters that are composed the first alone.
    assert rows_of(tokenizer, ["cafe\u0301"])[0][1][-1] == (3, 5)


def test_the_pattern_may_stand_in_the_file(bpe_of_corpus, bpe):
    file = changed(bpe_of_corpus, pre_tokenizer=after(SPLIT))
    assert ByteBPETokenizer(file).sha256 == bpe.sha256
    assert their_ids(theirs_of(file), HARD_TEXTS[:-2]) == [bpe.encode(text) for text in HARD_TEXTS[:-2]]


def test_a_file_may_have_no_unknown_token(bpe_of_corpus):
    values = json.loads(bpe_of_corpus)
    del values["model"]["vocab"]["<unk>"]
    values["added_tokens"] = [token for token in values["added_tokens"] if token["content"] != "<unk>"]
    values["model"]["unk_token"] = None
    tokenizer = ByteBPETokenizer(json.dumps(values).encode())
    assert tokenizer.unk_id == tokenizer.pad_id == 1


NO_TWIN = r"""
    {"normalizer": {"type": "Lowercase"}}                        | has the normalizer Lowercase
    {"pre_tokenizer": {"type": "Metaspace"}}                     | known is the BPE of bytes
    {"added_tokens": [{"id": 5000, "content": "whole", "single_word": true}]} | single_word
    {"model": {"dropout": 0.1}}                                  | dropout=0.1
    {"model": {"end_of_word_suffix": "</w>"}}                    | end_of_word_suffix
    {"model": {"ignore_merges": true}}                           | ignore_merges=true \(model BPE\), which is not followed; tokenize with
    {"pre_tokenizer": {"type": "ByteLevel", "use_regex": false}} | has use_regex=false \(pre_tokenizer ByteLevel\)
    {"model": {"merges": [["a", "q"]]}}                          | needs 'aq'
    {"post_processor": {"type": "TemplateProcessing", "single": [], "pair": []}} | does not frame a text
"""  # noqa: E501
STEPS = [
    (SPLIT | {"pattern": {"Regex": "a+"}}, r'pattern=\{"Regex": "a\+"\} \(pre_tokeni'),
    (SPLIT | {"behavior": "Removed"}, "has behavior=Removed"),
    ({"type": "Digits"}, "has the pre_tokenizer Digits"),
]


@pytest.mark.parametrize(
    "change, message",
    [
        *((json.loads(row.split(" |")[0]), row.split(" |")[1].strip()) for row in NO_TWIN.strip().splitlines()),
        *(({"pre_tokenizer": after(step)}, message) for step, message in STEPS),
    ],
)
def test_what_has_no_twin_or_is_damaged_is_refused(bpe_of_corpus, change, message):
    values = json.loads(bpe_of_corpus)
    for key, value in change.items():
        values[key] = values[key] | value if key == "model" else value
    with refused(message):
        ByteBPETokenizer(json.dumps(values).encode())


@pytest.mark.parametrize("piece, message", [("A", "no piece for the byte 0x41"), ("<mask>", "no mask token such as")])
def test_a_vocabulary_without_a_byte_or_a_mask_is_refused(bpe_of_corpus, piece, message):
    values = json.loads(bpe_of_corpus)
    values["added_tokens"] = values["added_tokens"][:4]
    values["model"]["vocab"][f"not {piece}"] = values["model"]["vocab"].pop(piece)
    values["model"]["merges"] = []
    with refused(message):
        ByteBPETokenizer(json.dumps(values).encode())


def test_every_form_of_its_files_is_the_same_tokenizer(bpe, tmp_path):
    assert_stays_the_same(bpe, tmp_path, ["a b,"])
    two = shutil.copytree(tmp_path / "theirs", tmp_path / "two")
    (two / "tokenizer.json").unlink()
    for place in (two, two / "vocab.json", tmp_path / "theirs" / "tokenizer.json"):
        assert load_tokenizer(place).sha256 == bpe.sha256
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "own" / "tokenizer.json"))
    assert library.encode("a b,", add_special_tokens=False).ids == bpe.encode("a b,")
    with refused("leave out --lower_case"):
        tokenizer_in(two, lower_case=True)
    for content in ("", "#version: 0.2\n"):
        (two / "merges.txt").write_text(content)
        with refused("has pieces of several bytes, but its merges"):
            tokenizer_in(two)
    (two / "merges.txt").unlink()
    with refused("without its merges"):
        tokenizer_in(two)


def test_special_tokens_of_other_names_are_named_beside_the_vocabulary(bpe, tmp_path):
    values = json.loads(bpe.published_files()["vocab.json"])
    values["<|hide|>"] = values.pop("<mask>")
    (tmp_path / "vocab.json").write_text(json.dumps(values))
    (tmp_path / "merges.txt").write_bytes(bpe.published_files()["merges.txt"])
    message = r"no mask token such as <mask> or \[MASK\]; name it in a special_tokens_map"
    with refused(message):
        tokenizer_in(tmp_path)
    (tmp_path / "special_tokens_map.json").write_text('{"mask_token": {"content": "<|hide|>"}}')
    tokenizer = tokenizer_in(tmp_path)
    tokenizer.save(tmp_path / "own")
    assert load_tokenizer(tmp_path / "own").mask_id == tokenizer.mask_id == bpe.mask_id


def test_the_same_lines_give_the_same_file(corpus_lines):
    file = train_bpe(corpus_lines[:1500], 700)
    assert file == train_bpe(corpus_lines[:1500], 700)
    tokenizer = ByteBPETokenizer(file)
    assert tokenizer.pieces[:5] == BPE_SPECIAL and tokenizer.vocab_size == 700
    roles = ("cls", "pad", "sep", "unk", "mask")
    assert [getattr(tokenizer, f"{role}_id") for role in roles] == [0, 1, 2, 3, 4]


def test_sizes_that_do_not_fit():
    theses = ["the thesis, the theme"] * 2
    for lines, size, message in (
        (["a"], 100, "raise it to 261"),
        (theses, 1000, r"set it to \d+ or less"),
        ([], 1000, "no text to train on"),
    ):
        with refused(message):
            train_bpe(lines, size)
    assert ByteBPETokenizer(train_bpe(theses, 1000, hard_vocab_limit=False)).vocab_size > 261

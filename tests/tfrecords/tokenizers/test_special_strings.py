"""Strings of special tokens within a text: Python, the graph and the `tokenizers` library read them alike."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tfrecords.tokenizers.test_byte_bpe import token
from tests.tfrecords.tokenizers.twins import assert_as_the_library, assert_twins, ids_of, rows_of, texts, theirs_of
from tfrecords.tokenizers.base import UnknownTokenizer
from tfrecords.tokenizers.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.training import train_bpe

pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")

ROBERTA = ["<s>", "</s>", "<unk>", "<mask>", "<pad>"]
MIXED = st.lists(
    st.sampled_from([*ROBERTA, "<dom>", " ", "   ", "\n", "\u3000", "fox", " dog", "中", "<", ">", "'s"]) | texts,
    max_size=8,
).map("".join)
# How the file's rules differ from those of a plain one, and which tokens take in white space.
PLAIN, TRIMMED, WIDE = (False, False, False), (False, True, True), (True, True, True)


def tokenizer_file(prefix, trim, keeps_first, wide=False, added=()):
    values = json.loads(train_bpe(["the quick fox and the lazy dog  x   y    z 中文"] * 3, 320, hard_vocab_limit=False))
    values["added_tokens"] = [one | {"lstrip": wide and one["content"] == "<mask>"} for one in values["added_tokens"]]
    number = max(values["model"]["vocab"].values()) + 1
    values["added_tokens"] += [token(number, "<dom>", rstrip=wide), *added]
    values["pre_tokenizer"]["add_prefix_space"] = prefix
    values["post_processor"] |= {"trim_offsets": trim, "add_prefix_space": keeps_first}
    return json.dumps(values).encode()


@pytest.fixture(scope="module", params=[(*PLAIN, False), (*TRIMMED, False), (*WIDE, True)], ids=str)
def reading(request):
    """A tokenizer that reads special strings, the library's own, and whether the graph knows offsets."""
    file = tokenizer_file(*request.param)
    return ByteBPETokenizer(file).reading_special_strings(), theirs_of(file, without_added=False), not request.param[3]


@given(batch=st.lists(MIXED, min_size=1, max_size=6))
@example(["fox <unk> dog", "<unk>", "<unk><unk>fox", "<mask> <unk>\n", " <mask>", "<dom> <mask><pad>", "   the", "  "])
def test_ids_and_offsets_are_those_of_the_library_and_of_the_graph(reading, batch):
    ours, theirs, offsets = reading
    assert_as_the_library(ours, theirs, batch, twin=False)
    assert_twins(ours, batch, offsets=offsets)


def test_blanks_before_a_text_are_where_the_library_has_them():
    values = json.loads(tokenizer_file(*WIDE))
    values["added_tokens"] = [one for one in values["added_tokens"] if one["special"]]
    file, batch = json.dumps(values).encode(), ["  fox", "   ", " fox", "    z", "\n fox", "fox"]
    ours = ByteBPETokenizer(file)
    assert_as_the_library(ours, theirs_of(file), batch)
    assert rows_of(ours, ["   y"])[0][1][0] == (2, 2)


@pytest.mark.parametrize(
    "added",
    [
        [token(900, "  "), token(901, "<x>", lstrip=True)],
        [token(900, "  ", rstrip=True)],
        [token(900, "<x>"), token(901, "a<x>", normalized=True)],
        [token(900, "<x>y"), token(901, "<x>", lstrip=True)],
        [token(900, "<x>", lstrip=True), token(901, "<y>", normalized=True, rstrip=True)],
    ],
    ids=lambda added: " and ".join(one["content"] for one in added),
)
def test_tokens_that_the_library_may_find_otherwise_are_refused(added):
    with pytest.raises(UnknownTokenizer, match="may overlap in a text"):
        ByteBPETokenizer(tokenizer_file(*PLAIN, added=added))


def test_other_kinds_read_them_as_text_in_python_and_graph(german_tokenizer, small_wordpiece):
    batch = ["a [MASK] b", "[CLS][SEP]", "<pad> x", " [UNK]\n<unk>,<unk>", *ROBERTA, "[PAD]über[MASK]"]
    for tokenizer in (german_tokenizer, small_wordpiece):
        assert_twins(tokenizer, batch)
        special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id}
        assert not special & {number for ids in ids_of(tokenizer, batch) for number in ids}

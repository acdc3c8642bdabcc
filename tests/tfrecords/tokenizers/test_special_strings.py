"""Strings of special tokens within a text: Python, the graph and the `tokenizers` library read them alike."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.refusals import refused
from tests.tfrecords.tokenizers.test_byte_bpe import token
from tests.tfrecords.tokenizers.twins import assert_as_the_library, assert_twins, ids_of, texts, theirs_of
from tfrecords.tokenizers.base import UnknownTokenizer
from tfrecords.tokenizers.bytes.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.vocabularies.training import BPE_SPECIAL, train_bpe

MIXED = st.lists(
    st.sampled_from(["<dom>", " ", "   ", "\n", "\u3000", "fox", " dog", "中", "<", ">", "'s"]) | texts, max_size=8
).map("".join)


def tokenizer_file(prefix, trim, keeps_first, added=()):
    values = json.loads(train_bpe(["the quick fox and the lazy dog  x   y    z 中文"] * 3, 320, hard_vocab_limit=False))
    number = max(values["model"]["vocab"].values()) + 1
    values["added_tokens"] += [token(number, "<dom>"), *added]
    values["pre_tokenizer"]["add_prefix_space"] = prefix
    values["post_processor"] |= {"trim_offsets": trim, "add_prefix_space": keeps_first}
    return json.dumps(values).encode()


@pytest.fixture(scope="module", params=[(False, False, False), (False, True, True), (True, True, True)], ids=str)
def reading(request):
    """A tokenizer with an added token, the library's own, and whether the graph knows offsets."""
    file = tokenizer_file(*request.param)
    return ByteBPETokenizer(file), theirs_of(file, without_added=False), not request.param[0]


@given(batch=st.lists(MIXED, min_size=1, max_size=6))
@example(["fox <dom> dog", "<dom>", "<dom><dom>fox", "<dom> <dom>\n", " <dom>", "   the", "  ", "  fox", "    z"])
def test_ids_and_offsets_are_those_of_the_library_and_of_the_graph(reading, batch):
    ours, theirs, offsets = reading
    assert_as_the_library(ours, theirs, batch, twin=False)
    assert_twins(ours, batch, offsets=offsets)
    if not offsets:
        with refused("blank is put behind tokens"):
            ours._twin_for_tests.with_offsets(batch)


@pytest.mark.parametrize(
    "added, message",
    [
        ([token(900, "<x>", lstrip=True)], "takes in white space"),
        ([token(900, "  ", rstrip=True)], "takes in white space"),
        ([token(900, "<x>"), token(901, "a<x>", normalized=True)], "may overlap in a text"),
    ],
)
def test_tokens_that_the_library_may_find_otherwise_are_refused(added, message):
    with pytest.raises(UnknownTokenizer, match=message):
        ByteBPETokenizer(tokenizer_file(False, False, False, added))


def test_other_kinds_read_them_as_text_in_python_and_graph(german_tokenizer, small_wordpiece):
    batch = ["a [MASK] b", "[CLS][SEP]", "<pad> x", " [UNK]\n<unk>,<unk>", *BPE_SPECIAL, "[PAD]über[MASK]"]
    for tokenizer in (german_tokenizer, small_wordpiece):
        assert_twins(tokenizer, batch)
        special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id}
        assert not special & {number for ids in ids_of(tokenizer, batch) for number in ids}

"""Texts that tokenizers are tried on, and the comparison of a tokenizer with its twin in the graph."""

# ruff: noqa: RUF001
import itertools
import json

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

HARD_TEXTS = [
    "",
    " ",
    "\0",
    "a\0b",
    "In 1999, he sold 1,234,567 shares, 5,",
    "Café naïve — “quoted” ``tex'' ﬁne Å ½ ™",
    "日本語と中文 mixed，标点。",
    "emoji 👩‍👩‍👧 \u200b zero",
    "tabs\tand\nlines\x85\u2028\u3000x",
    "x" * 300,
    "한국어 ᄒ" + "ᅡᆫ",
    "\ufffd \ufeff",
    "a" * 100_000,
]
# Text that UTF-8 can carry; half of it made of what the rules are about.
texts = st.text(
    st.one_of(st.sampled_from(" ,.09aAéß中，''``\0\u0301ΣİﬁÅ\u3000"), st.characters(codec="utf-8")), max_size=40
)


# Most of it no UTF-8.
no_utf8 = st.sampled_from([b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe4\xb8", b"the", b" ", b"\xc3\xa9"])
raw_bytes = st.lists(no_utf8).map(b"".join) | st.binary(max_size=20)


def ids_of(tokenizer, batch):
    ids, splits = tokenizer.encode_batch(batch)
    assert ids.dtype == np.int32
    assert splits.dtype == np.int64
    return [ids[start:end].tolist() for start, end in itertools.pairwise(splits)]


def wordpiece(*pieces, lower_case=True, keep_accents=False):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]
    return WordPieceTokenizer("\n".join(pieces).encode() + b"\n", lower_case, keep_accents=keep_accents)


def assert_twins(tokenizer, batch):
    if not hasattr(tokenizer, "_twin_for_tests"):
        tokenizer._twin_for_tests = tokenizer.in_graph()
    ragged = tokenizer._twin_for_tests(tf.constant(batch, tf.string))
    assert ragged.dtype == tf.int32
    texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in batch]
    assert ragged.to_list() == ids_of(tokenizer, texts)


def graph_function(twin):
    signature = [tf.TensorSpec([None], tf.string)]
    return tf.function(lambda texts: twin(texts).to_tensor(), input_signature=signature)


def read_rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

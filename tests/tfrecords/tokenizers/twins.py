"""Texts that tokenizers are tried on, and their comparison with the `tokenizers` library and with the graph."""

# ruff: noqa: RUF001
import itertools
import json
import pickle

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from tfrecords.tokenizers.loading import load_tokenizer, tokenizer_in
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

HARD_TEXTS = [
    *("", " ", "   ", "\n", "\0", "a\0b", "a  b   c \n\n d\t", "\u3000\u3000 a", "x\u00a0 y \u2028 z\x85"),
    "In 1999, he sold 1,234,567 shares, 5,; I'll don't WE'VE they're 's 'S it's'd",
    "Café naïve — “quoted” ``tex'' ﬁne Å ½ ™ cafe\u0301",
    "日本語と中文 mixed，标点。  双空格",
    "emoji 👩‍👩‍👧👍🏽 \u200b zero \ufeff \ufffd",
    "한국어 ᄒ" + "ᅡᆫ",
    "tabs\tand\nlines\x85\u2028\u3000x",
    "def f(x):\n    return {'a': x ** 2}  # ok\n\n\n",
    "<s> </s> <mask> <pad> a<mask>b",
    "\U0001c489 \u1c89 \U00016d40 \U00010d40",
    "ab" * 40_000,
    "x" * 300,
]
# Text that UTF-8 can carry; half of it made of what the rules are about.
texts = st.text(
    st.one_of(
        st.sampled_from(" \n\t,.019aAéß中，'`\0\u0301\u200bΣİﬁÅ½\u3000\u00a0bstreldvÿþý👍"),
        st.characters(codec="utf-8"),
    ),
    max_size=40,
)
# Most of it no UTF-8.
no_utf8 = st.sampled_from(
    [b"\xff", b"\xfe", b"\xfd", b"\xc0\x80", b"\xed\xa0\x80", b"\xe4\xb8", b"the", b" ", b"\xc3\xa9"]
)
raw_bytes = st.lists(no_utf8).map(b"".join) | st.binary(max_size=20)


def wordpiece(*pieces, lower_case=True, keep_accents=False):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]
    return WordPieceTokenizer("\n".join(pieces).encode() + b"\n", lower_case, keep_accents=keep_accents)


def split_rows(values, splits):
    return [values[start:end].tolist() for start, end in itertools.pairwise(splits)]


def ids_of(tokenizer, batch):
    ids, splits = tokenizer.encode_batch(batch)
    assert (ids.dtype, splits.dtype) == (np.int32, np.int64)
    return split_rows(ids, splits)


def rows_of(tokenizer, batch):
    """Ids and offsets of each text, which lie in it."""
    ids, splits, offsets = tokenizer.encode_with_offsets(batch)
    assert (offsets.dtype, offsets.shape) == (np.int32, (len(ids), 2))
    of_rows = [[tuple(offset) for offset in row] for row in split_rows(offsets, splits)]
    for text, row in zip(batch, of_rows, strict=True):
        assert all(0 <= start <= end <= len(text) for start, end in row)
    assert split_rows(ids, splits) == ids_of(tokenizer, batch)
    return list(zip(split_rows(ids, splits), of_rows))


def assert_twins(tokenizer, batch, offsets=True):
    """The graph gives the ids of Python, and its offsets; those of a kind that drops white space may leave it out."""
    if not hasattr(tokenizer, "_twin_for_tests"):
        tokenizer._twin_for_tests = tokenizer.in_graph()
    twin, inputs = tokenizer._twin_for_tests, tf.constant(batch, tf.string)
    strings = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in batch]
    rows, found = rows_of(tokenizer, strings), twin(inputs)
    assert found.dtype == tf.int32
    assert found.to_list() == [ids for ids, _ in rows]
    if not offsets:
        return
    ids, starts, ends = (part.to_list() for part in twin.with_offsets(inputs))
    assert ids == [ids for ids, _ in rows]
    for text, places, (_, expected) in zip(strings, map(zip, starts, ends), rows):
        places = list(places)
        if tokenizer.kind == "bpe":
            assert places == expected, text[:60]
            continue
        # They never go back.
        assert sorted(expected) == expected and [end for _, end in expected] == sorted(end for _, end in expected)
        for (start, end), (first, last) in zip(places, expected, strict=True):
            assert text[start:end].strip() == text[first:last].strip()
            assert first <= start <= end <= max(last, start)


def assert_stays_the_same(tokenizer, folder, batch, published=True):
    """Saved in "own", pickled and (unless `published` says no) as its library's files in "theirs" it is the same."""
    tokenizer.save(folder / "own")
    copies = [load_tokenizer(folder / "own"), pickle.loads(pickle.dumps(tokenizer))]
    if published:
        (folder / "theirs").mkdir()
        for name, content in tokenizer.published_files().items():
            (folder / "theirs" / name).write_bytes(content)
        copies.append(tokenizer_in(folder / "theirs"))
    for copy in copies:
        rules = [(one.sha256, one.kind, one.keep_accents, one.separators_between) for one in (copy, tokenizer)]
        assert rules[0] == rules[1] and ids_of(copy, batch) == ids_of(tokenizer, batch)


def theirs_of(vocabulary, without_added=True):
    """The library's own tokenizer; `without_added`: no string of a special token is cut out."""
    import tokenizers

    values = json.loads(vocabulary)
    if without_added:
        values["added_tokens"] = []
    return tokenizers.Tokenizer.from_str(json.dumps(values))


def their_ids(theirs, batch):
    return [found.ids for found in theirs.encode_batch(list(batch), add_special_tokens=False)]


def assert_as_the_library(tokenizer, theirs, batch, twin=True):
    """Ids and offsets are those of the `tokenizers` library, and (unless `twin` says no) those of the graph too."""
    encodings = theirs.encode_batch(list(batch), add_special_tokens=False)
    for text, ours, encoding in zip(batch, rows_of(tokenizer, batch), encodings):
        assert ours == (encoding.ids, encoding.offsets), text[:60]
    if twin:
        assert_twins(tokenizer, batch)


def changed(vocabulary, **values):
    return json.dumps(json.loads(vocabulary) | values).encode()


def read_rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

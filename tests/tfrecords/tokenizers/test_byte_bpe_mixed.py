"""A million tokens of mixed text: byte-level BPE against the `tokenizers` library, and the graph against Python."""

import gzip
import json
import random
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tfrecords.tokenizers.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.training import train_bpe

tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
pytestmark = pytest.mark.slow
# Characters that regular expressions, normalisers and decoders are known to differ in.
ODD = " \n\t\r\v\f\x1c\x1f\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000\u200b\u200d\ufeff\0\ufffd\u0301'’½Ⅷ٣"  # noqa: RUF001
EMOJI = [*map(chr, range(0x1F600, 0x1F650)), "👩‍👩‍👧", "👍🏽", "🇩🇪", "❤️"]


def wikipedia(path, size):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines, taken = [], 0
        for line in file:
            lines += json.loads(line)["text"].split("\n")
            taken += len(line)
            if taken > size:
                return lines
    return lines


def code(size):
    """Python's own library: each file a text."""
    texts = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        texts.append(path.read_text(encoding="utf-8", errors="replace"))
        if sum(map(len, texts)) > size:
            break
    return texts


def random_texts(rng, count, draw):
    return ["".join(draw(rng) for _ in range(rng.randrange(60))) for _ in range(count)]


def any_character(rng):
    number = rng.randrange(rng.choice([0x80, 0x3000, 0x10000, 0x110000]))
    return "a" if 0xD800 <= number < 0xE000 else chr(number)


def odd_character(rng):
    return rng.choice([rng.choice(ODD), rng.choice(ODD), "a", "the", "'s", "12", "中", ".", rng.choice(EMOJI)])


def with_broken_bytes(rng, text):
    data = bytearray(text.encode())
    for _ in range(len(data) // 20):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


@pytest.fixture(scope="module")
def kinds(shared):
    """Texts by kind: str, or bytes that need be no UTF-8."""
    rng, corpus = random.Random(20), shared / "data" / "corpus"
    english = wikipedia(corpus / "wiki-en.jsonl.gz", 2_500_000)
    return {
        "English": english,
        "Chinese": wikipedia(corpus / "wiki-zh.jsonl.gz", 500_000),
        "code": code(1_000_000),
        "random Unicode": random_texts(rng, 1500, any_character),
        "odd white space, emoji": random_texts(rng, 3000, odd_character),
        "not UTF-8": [with_broken_bytes(rng, text) for text in english[:600]],
    }


@pytest.fixture(scope="module")
def vocabulary(kinds):
    """Of one text in eight: most of the text is new to it."""
    return train_bpe([text for name in ("English", "Chinese", "code") for text in kinds[name][::8]], 8000)


def test_a_million_tokens_are_those_of_the_library_in_python_and_graph(kinds, vocabulary):
    ours = ByteBPETokenizer(vocabulary)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(json.loads(vocabulary) | {"added_tokens": []}))
    twin = tf.function(ours.in_graph(), input_signature=[tf.TensorSpec([None], tf.string)])
    tokens, different = {}, []
    for kind, texts in kinds.items():
        strings = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts]
        ids, splits = ours.encode_batch(strings)
        tokens[kind] = len(ids)
        encodings = theirs.encode_batch(strings, add_special_tokens=False)
        rows = np.split(ids, splits[1:-1])
        different += [text for text, row, one in zip(texts, rows, encodings) if row.tolist() != one.ids]
        for start in range(0, len(texts), 256):
            found = twin(tf.constant(texts[start : start + 256], tf.string)).to_list()
            here = zip(texts[start : start + 256], rows[start : start + 256], found)
            different += [text for text, row, one in here if row.tolist() != one]
    print(tokens, sum(tokens.values()))
    assert not different, (len(different), different[:3])
    assert sum(tokens.values()) > 1_000_000

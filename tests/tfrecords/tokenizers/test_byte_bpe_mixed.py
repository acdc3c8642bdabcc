"""A million tokens of mixed text: byte-level BPE against the `tokenizers` library, and the graph against Python."""

import random
import sysconfig
from itertools import islice
from pathlib import Path

import pytest

from tests.tfrecords.tokenizers.twins import assert_twins, their_ids, theirs_of
from tfrecords import corpus
from tfrecords.tokenizers.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.training import train_bpe

tokenizers = pytest.importorskip("tokenizers", reason="the package tokenizers is not installed")
pytestmark = pytest.mark.slow
# Characters that regular expressions, normalisers and decoders are known to differ in.
ODD = " \n\t\r\v\f\x1c\x1f\x85\xa0\u1680\u2003\u2028\u202f\u205f\u3000\u200b\u200d\ufeff\0\ufffd\u0301'’½Ⅷ٣"  # noqa: RUF001
EMOJI = [*map(chr, range(0x1F600, 0x1F650)), "👩‍👩‍👧", "👍🏽", "🇩🇪", "❤️"]


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


def test_a_million_tokens_are_those_of_the_library_in_python_and_graph(shared):
    rng = random.Random(20)
    english, chinese = (
        [
            line
            for text in islice(corpus.read_documents(f"{shared}/data/corpus/{name}.jsonl.gz"), count)
            for line in text
        ]
        for name, count in (("wiki-en", 800), ("wiki-zh", 300))
    )
    code = [path.read_text("utf-8", "replace") for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))]
    prose = [*english, *chinese, *code[:80]]
    random_texts = [
        "".join(draw(rng) for _ in range(rng.randrange(60))) for draw in (any_character, odd_character) * 2000
    ]
    broken = [with_broken_bytes(rng, text) for text in english[:600]]
    # A vocabulary of one text in eight: most of the text is new to it.
    vocabulary = train_bpe(prose[::8], 8000)
    ours, theirs, tokens = ByteBPETokenizer(vocabulary), theirs_of(vocabulary), 0
    batch = prose + random_texts + broken
    for start in range(0, len(batch), 256):
        some = batch[start : start + 256]
        assert_twins(ours, some, offsets=False)
        strings = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in some]
        expected = their_ids(theirs, strings)
        assert [ours.encode(text) for text in strings] == expected
        tokens += sum(map(len, expected))
    assert tokens > 1_000_000

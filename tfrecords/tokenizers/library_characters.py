"""The `tokenizers` library's rules for characters, where google-research/bert's or Python's differ."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
from tokenizers import normalizers, pre_tokenizers

from tfrecords.tokenizers import unicode_classes

# A separator that no step changes or produces.
BETWEEN = "\u4dc0"

# The first and last of the runs that `clean_text` of BertNormalizer drops: zero, halves of pairs, private characters.
NOT_TEXT = ((0, 0), (0xD800, 0xDFFF), (0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))


# Of the runs that `handle_chinese_chars` puts blanks around, those whose characters no other step changes.
CHINESE = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F))
CHINESE += ((0x2B920, 0x2CEAF),)


@functools.cache
def characters(chinese: bool = True) -> list[str]:
    """Returns all assigned characters, without `NOT_TEXT` and, unless `chinese`, without `CHINESE`."""
    codes = np.concatenate([np.arange(*run) for run in ((1, 0xD800), (0xF900, 0x30000), (0xE0000, 0xE0200))])
    for first, last in () if chinese else CHINESE:
        codes = codes[(codes < first) | (codes > last)]
    return [chr(code) for code in codes.tolist() if code != ord(BETWEEN)]


@functools.cache
def changed_by_bert(clean: bool, chinese: bool, strip_accents: bool, lower_case: bool) -> dict[str, str]:
    """Returns the characters outside of `CHINESE` that BertNormalizer changes, with their results."""
    step = normalizers.BertNormalizer(clean, chinese, strip_accents, lower_case)
    others = characters(chinese=False)
    results = step.normalize_str(BETWEEN.join(others)).split(BETWEEN)
    return {one: new for one, new in zip(others, results, strict=True) if one != new}


def normalizing(steps: Sequence[str]) -> Callable[[str], str]:
    """Returns a function that applies normalizers such as "NFKD" in turn."""
    return normalizers.Sequence([getattr(normalizers, step)() for step in steps]).normalize_str


def of_graphemes(rules: dict[str, str]) -> dict[str, str]:
    """Maps character sequences in a SentencePiece model's rules to what the normalizer Precompiled makes of them.

    A grapheme under 6 bytes gets the rule with the shortest source that begins it
    (tokenizers/normalizers/precompiled.rs).
    """
    short = [source for source in rules if len(source) > 1 and len(source.encode()) < 6]
    return {
        source: rules[next(source[:end] for end in range(1, len(source) + 1) if source[:end] in rules)]
        for source in short
    }


@functools.cache
def split_by_bert() -> dict[str, str]:
    """Maps characters at which BertPreTokenizer splits: white space to a blank, others to themselves between blanks."""
    signs = [one for one in characters(chinese=False) if not one.isalpha()]
    parts = pre_tokenizers.BertPreTokenizer().pre_tokenize_str("a".join(signs))
    words = {part: f" {part} " for part, _ in parts if len(part) == 1 and part != "a"}
    return words | dict.fromkeys(unicode_classes.characters(unicode_classes.SPACE), " ")

"""What the `tokenizers` library does to single characters, where google-research's tables or Python's differ."""

import functools
from collections.abc import Callable, Sequence

from tfrecords.tokenizers.unicode_classes import SPACE, ranges

# A sign that no step changes, and nothing becomes, goes between two others.
BETWEEN = "\u4dc0"

# The first and last of the runs that `clean_text` of BertNormalizer drops: zero, halves of pairs, private characters.
NOT_TEXT = ((0, 0), (0xD800, 0xDFFF), (0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))


@functools.cache
def characters() -> list[str]:
    """All code points that are assigned, without those that are `NOT_TEXT`."""
    runs = range(1, 0xD800), range(0xF900, 0x30000), range(0xE0000, 0xE0200)
    return [chr(code) for run in runs for code in run if chr(code) != BETWEEN]


@functools.cache
def changed_by_bert(clean: bool, chinese: bool, strip_accents: bool, lower_case: bool) -> dict[str, str]:
    """Returns the characters that BertNormalizer changes, each alone, with what it makes of them."""
    from tokenizers import normalizers

    step = normalizers.BertNormalizer(clean, chinese, strip_accents, lower_case)
    results = step.normalize_str(BETWEEN.join(characters())).split(BETWEEN)
    return {one: new for one, new in zip(characters(), results, strict=True) if one != new}


def normalizing(steps: Sequence[str]) -> Callable[[str], str]:
    """Returns what normalizers such as "NFKD" and "StripAccents" do to a text, one after the other."""
    from tokenizers import normalizers

    return normalizers.Sequence([getattr(normalizers, step)() for step in steps]).normalize_str


@functools.cache
def split_by_bert() -> dict[str, str]:
    """Returns the characters at which BertPreTokenizer splits text, white space as a blank, others between blanks."""
    from tokenizers import pre_tokenizers

    signs = [one for one in characters() if not one.isalpha()]
    parts = pre_tokenizers.BertPreTokenizer().pre_tokenize_str("a".join(signs))
    words = {part: f" {part} " for part, _ in parts if len(part) == 1 and part != "a"}
    return words | {chr(code): " " for first, last in ranges(SPACE) for code in range(first, last + 1)}

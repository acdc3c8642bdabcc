"""Splits text into words by GPT-2's pattern (openai/gpt-2:encoder.py, `Encoder`) in compiled code."""

from tfrecords.base.compiled import compiled
from tfrecords.tokenizers.unicode_classes import LETTER, NUMBER, OTHER, SPACE

# Codes from here on are tokens: this number plus the token's id.
FIRST_TOKEN = 0x110000
_TOKEN = SPACE + 1
_BLANK, _APOSTROPHE = ord(" "), ord("'")
_S, _T, _M, _D, _R, _E, _V, _L = (ord(letter) for letter in "stmdrevl")


@compiled
def _kind(code, classes):
    return classes[code] if code < FIRST_TOKEN else _TOKEN


@compiled
def word_end(codes, begin, end, classes):
    """Returns where the word that begins at `begin` ends, in a text that ends at `end`."""
    if codes[begin] == _APOSTROPHE:
        after = _contraction_end(codes, begin, end)
        if after > begin:
            return after
    first, kind = begin, _kind(codes[begin], classes)
    if kind == _TOKEN:
        return begin + 1
    if codes[begin] == _BLANK and begin + 1 < end:
        following = _kind(codes[begin + 1], classes)
        if following in (LETTER, NUMBER, OTHER):
            first, kind = begin + 1, following
    stop = first + 1
    while stop < end and _kind(codes[stop], classes) == kind:
        stop += 1
    # The last of several spaces belongs to the next word.
    if kind == SPACE and stop - begin > 1 and stop < end and codes[stop] < FIRST_TOKEN:
        stop -= 1
    return stop


@compiled
def _contraction_end(codes, begin, end):
    if begin + 1 < end:
        first = codes[begin + 1]
        if first in (_S, _T, _M, _D):
            return begin + 2
        if begin + 2 < end:
            second = codes[begin + 2]
            if (first in (_R, _V) and second == _E) or (first == _L and second == _L):
                return begin + 3
    return begin

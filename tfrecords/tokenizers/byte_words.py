"""Where the words of byte-level BPE end: by GPT-2's pattern, compiled, or by any other with the `tokenizers` library.

GPT-2's is that of openai/gpt-2:encoder.py, `Encoder`. No word reaches over a token that was cut out of a text.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tfrecords.base.compiled import compiled
from tfrecords.base.errors import UserError, first_line
from tfrecords.tokenizers.byte_bpe_file import GPT2_PATTERN
from tfrecords.tokenizers.unicode_classes import LETTER, NUMBER, OTHER, SPACE

# Codes from here on are no characters but tokens: this number and the token's id.
FIRST_TOKEN = 0x110000
_TOKEN = SPACE + 1
_BLANK, _APOSTROPHE = ord(" "), ord("'")
_S, _T, _M, _D, _R, _E, _V, _L = (ord(letter) for letter in "stmdrevl")

# Codes of all texts end to end, uint32, and their splits, to where each word ends: int64 [words].
Words = Callable[[np.ndarray, np.ndarray], np.ndarray]


def words_by(patterns: Sequence[str]) -> Words | None:
    """Makes what finds the words; None where they are GPT-2's, which `word_end` finds one by one.

    Args:
        patterns: regular expressions of the `tokenizers` library, by each of which what the one before has left whole
            is parted into its matches and what stands between them.

    Raises:
        UserError: the library does not understand a pattern.

    >>> words_by([r"\\s+"])(np.array([ord(letter) for letter in "It is"], np.uint32), np.array([0, 5]))
    array([2, 3, 5])
    """
    if tuple(patterns) == (GPT2_PATTERN,):
        return None
    parting = library_parting(patterns)
    return lambda codes, text_splits: _library_ends(codes, text_splits, parting)


def library_parting(patterns: Sequence[str]):
    """Gives the pre-tokenizer of the `tokenizers` library that parts a text by these patterns, one after the other."""
    # Only here: GPT-2's words need it not.
    from tokenizers import Regex, pre_tokenizers

    try:
        return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns])
    except Exception as error:
        raise UserError(f"text cannot be parted by one of {list(patterns)}: {first_line(error)}") from error


def _library_ends(codes: np.ndarray, text_splits: np.ndarray, parting) -> np.ndarray:
    tokens = np.flatnonzero(codes >= FIRST_TOKEN)
    edges = np.unique(np.concatenate([text_splits, tokens, tokens + 1]))
    data, ends = codes.astype("<u4").tobytes(), list[int]()
    is_token = np.isin(edges, tokens).tolist()
    for begin, end, whole in zip(edges.tolist(), edges[1:].tolist(), is_token):
        if whole:
            ends.append(end)
        else:
            text = data[4 * begin : 4 * end].decode("utf-32-le")
            ends.extend(begin + last for _, (_, last) in parting.pre_tokenize_str(text))
    return np.array(ends, np.int64)


@compiled
def _kind(code, classes):
    return classes[code] if code < FIRST_TOKEN else _TOKEN


@compiled
def word_end(codes, begin, end, classes):
    """Where the word of GPT-2's pattern ends that begins at `begin`; `end` is that of its text."""
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
    # The last of several spaces stays for the word behind them.
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

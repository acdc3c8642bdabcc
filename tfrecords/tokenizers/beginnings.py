"""Cuts texts of millions of characters before they are tokenized."""

import re
from collections.abc import Callable, Sequence
from typing import Any

# Characters of a text that are never cut, more than any word that is a token has, and for each token of a row.
_CHARACTERS, _OF_TOKEN = 2**17, 64
# Tokens at the end of a part that may be others in the whole text: WordPiece's words have up to 200 characters.
_MARGIN = 256
# Controls and formats.
_DROPPED = "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufffd]"
Tokenize = Callable[[Sequence[str]], tuple[Any, ...]]


def tokenize_beginnings(tokenize: Tokenize, texts: Sequence[str], count: int) -> tuple[Any, ...]:
    """Returns `tokenize(texts)`, but of a very long text only the first `count` tokens, or somewhat more.

    Time and memory are those of the part that is read; 9 million characters would take 2 GB.
    """
    most = _CHARACTERS + _OF_TOKEN * count
    return tokenize([text if len(text) <= most else _beginning(tokenize, text, count, most) for text in texts])


def _beginning(tokenize: Tokenize, text: str, count: int, size: int) -> str:
    if _is_enough(tokenize, text[:size], count):
        return text[:size]
    # Blanks, what WordPiece drops, or a word without end: few tokens, however long they are.
    # A word keeps more, since it may begin with what is dropped.
    for kind, most in ((_DROPPED, size), (r"\s", size), (r"\S", 2 * size)):
        text = re.sub(rf"({kind}{{{most}}}){kind}+", r"\1", text)
    while len(text) > size:
        size *= 8
        if _is_enough(tokenize, text[:size], count):
            return text[:size]
    return text


def _is_enough(tokenize: Tokenize, text: str, count: int) -> bool:
    return len(tokenize([text])[0]) >= count + _MARGIN

r"""Patterns that part text into words, written for the `tokenizers` library, as regular expressions of RE2.

RE2 cannot look ahead. Patterns from GPT-2's on look ahead in one place, `\s+(?!\S)|\s+`: of several spaces the last
stays for the word behind them. A mark that is put before such a space does the same, where no other alternative takes
that space with one before it; those that take line ends take them all, so a line end is no such space there.
"""

import re
from typing import NamedTuple

from tfrecords.base.errors import UserError
from tfrecords.tokenizers.unicode_classes import LETTER, NUMBER, SPACE, re2_class

_LOOK_AHEAD, _SPACES = r"\s+(?!\S)", (r"\s+", r"\s")
_CLASSES = {r"\s": SPACE, r"\p{L}": LETTER, r"\p{N}": NUMBER, r"\pL": LETTER, r"\pN": NUMBER}
_NEGATED = {r"\S": r"\s", r"\P{L}": r"\p{L}", r"\P{N}": r"\p{N}"}
_TOKEN = re.compile(r"\\[pP]\{\w+\}|\\[pP]\w|\\u[0-9a-fA-F]{4}|\\.|\(\?[a-z]*.|\[\^?|&&|[*+?]\+|.", re.DOTALL)
_LINE_END_TAKEN = re.compile(r"\[(?!\^)[^\]]*(?:\\[rn]|[\r\n])")


class Re2Pattern(NamedTuple):
    """Says the same as a pattern.

    Attributes:
        words: what matches the words, once marks stand where `look_ahead` says; "" where nothing parts text.
        look_ahead: a mark goes between the two groups of its matches; None where the pattern does not look ahead.
    """

    words: str
    look_ahead: str | None


def re2_pattern(pattern: str) -> Re2Pattern:
    r"""Translates a pattern.

    >>> re2_pattern(r"\d{1,3}|'(?i:s|ll)| ?[a-z]++").words
    "\\p{Nd}{1,3}|'(?i:s|ll)| ?[a-z]+"

    Raises:
        UserError: it holds what RE2 has no form for, or what is not known here.
    """
    alternatives = _alternatives(pattern)
    if _LOOK_AHEAD not in alternatives:
        return Re2Pattern(_translated(pattern), None)
    *others, looks, rest = alternatives
    if looks != _LOOK_AHEAD or rest not in _SPACES:
        raise UserError(rf"it looks ahead elsewhere than in a last `{_LOOK_AHEAD}|\s+`")
    line_end = "\r\n" if any(map(_LINE_END_TAKEN.search, others)) else ""
    spaces = re2_class(SPACE)
    look_ahead = f"([{spaces}]+)([{re2_class(SPACE, without=line_end)}][^{spaces}])"
    return Re2Pattern(_translated("|".join([*others, r"\s+"])), look_ahead)


def _alternatives(pattern: str) -> list[str]:
    """What stands between the bars that are in no group and no class."""
    parts, depth, in_class = [""], 0, False
    for found in _TOKEN.finditer(pattern):
        token = found.group()
        if token == "|" and not depth and not in_class:
            parts.append("")
            continue
        in_class = token != "]" if in_class else token in ("[", "[^")
        if not in_class and token[0] in "()":
            depth += 1 if token[0] == "(" else -1
        parts[-1] += token
    return parts


def _translated(pattern: str) -> str:
    parts, in_class = list[str](), False
    for found in _TOKEN.finditer(pattern):
        token = found.group()
        if in_class:
            # What a quantifier would be outside is two characters here.
            parts += map(_in_class, [token] if token[0] in "\\&" else token)
            in_class = not token.endswith("]") or token[0] == "\\"
        else:
            parts.append(_outside(token))
            in_class = token in ("[", "[^")
    return "".join(parts)


def _in_class(token: str) -> str:
    if token in _CLASSES:
        return re2_class(_CLASSES[token])
    if token in ("[", "&&") or token in _NEGATED:
        raise UserError(f"it has '{token}' between brackets")
    return _escape(token)


def _outside(token: str) -> str:
    if token in _CLASSES:
        return f"[{re2_class(_CLASSES[token])}]"
    if token in _NEGATED:
        return f"[^{re2_class(_CLASSES[_NEGATED[token]])}]"
    if token in ("$", "^") or (token.startswith("(?") and token not in ("(?:", "(?i:")):
        raise UserError(f"it has '{token}'")
    # Giving nothing back makes no difference where what follows could take none of it: the trial shows.
    return token[0] if token in ("*+", "++", "?+") else _escape(token)


def _escape(token: str) -> str:
    if not token.startswith("\\") or len(token) == 1:
        return token
    if token.startswith("\\u"):
        return f"\\x{{{token[2:]}}}"
    if token == r"\d":
        return r"\p{Nd}"
    # Of other general categories and scripts RE2's own tables are taken.
    if token[1] in "pPrntfv" or not token[1].isalnum():
        return token
    raise UserError(f"it has '{token}'")

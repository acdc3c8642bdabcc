"""Characters that are removed from the ends of answers, such as U+200B."""

import functools
import unicodedata

# Of Unicode's category Cf: signs that are seen (its Prepended_Concatenation_Mark), and the letters of emoji flags.
_SEEN = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0xE0020, 0xE0080)}


@functools.cache
def edges() -> str:
    """Returns the characters to strip from an answer: white space, controls (Cc), formats (Cf).

    >>> "\\u200e\\ufeffAnna Bell\\u200b ".strip(edges())
    'Anna Bell'
    """
    characters = map(chr, set(range(0xE1000)) - _SEEN)
    return "".join(sorted(one for one in characters if one.isspace() or unicodedata.category(one) in ("Cc", "Cf")))


def edge_pattern() -> str:
    """Returns an RE2 pattern for one character of `edges()`."""
    return "[" + "".join(rf"\x{{{ord(one):x}}}" for one in edges()) + "]"

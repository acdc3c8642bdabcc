"""Cells that hold lists, as JSON, Python (pandas) and numpy write them."""

import ast
import json
import re
from typing import Any

_QUOTED = r"""(?:'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")"""
# numpy's own strings are written np.str_('a').
_ITEM = rf"(?:np\.str_\({_QUOTED}\)|{_QUOTED})"
# ['a', 'b'], numpy's ['a' 'b'], ('a', 'b'); perhaps as array(['a', 'b'], dtype=object).
_ARRAY = re.compile(r"array\((.*?)(?:,\s*dtype=[^()]*)?\)", re.DOTALL)
_LIST = re.compile(
    rf"\[\s*(?:{_ITEM}(?:(?:\s*,\s*|\s+){_ITEM})*+\s*,?)?\s*\]|\(\s*{_ITEM}\s*,\s*(?:{_ITEM}\s*,?\s*)*+\)", re.DOTALL
)
_STRINGS = re.compile(_QUOTED, re.DOTALL)
# Numbers, words without quotes and lists in lists; an object, a set.
_OTHER_LIST = re.compile(r"\[(?:[\d\s.,eE+-]*|[^\[\]]*(?:,|\.\.\.)[^\[\]]*|\s*[\[{].*)\]|\{.*[:,].*\}|\{\}", re.DOTALL)

# Quoted strings in brackets that are no list of them: lists of lists, and what numpy shortened by ... in the middle.
UNREADABLE = re.compile(r"""\[[\s\[]*['"].*['"][\s\]]*\]""", re.DOTALL)


def listed(value: Any) -> list | None:
    """Returns the list in a cell, parsed if the cell is text; None if there is no list.

    >>> listed("['B-LOC', 'O']"), listed("['B-LOC' 'O']"), listed('["B-LOC", "O"]'), listed("a [b] c")
    (['B-LOC', 'O'], ['B-LOC', 'O'], ['B-LOC', 'O'], None)
    """
    if isinstance(value, list):
        return value
    text = value.strip() if isinstance(value, str) else ""
    if array := _ARRAY.fullmatch(text):
        text = array[1].strip()
    if not text.startswith(("[", "(")):
        return None
    try:
        # JSON's escapes are not all Python's.
        found = json.loads(text)
        if isinstance(found, list) and all(isinstance(one, str) for one in found):
            return found
    except (ValueError, RecursionError):
        pass
    try:
        return [ast.literal_eval(item) for item in _STRINGS.findall(text)] if _LIST.fullmatch(text) else None
    except (ValueError, SyntaxError):
        return None


def is_list(value: Any) -> bool:
    """Returns whether a cell is a list or object, or the text of one.

    >>> [is_list(value) for value in ([0, 1], "[0 1]", "{'a': 1}", "[B-LOC, O]", "[OTHER]", "a [b], c")]
    [True, True, True, True, False, False]
    """
    if isinstance(value, str):
        return listed(value) is not None or bool(_OTHER_LIST.fullmatch(value.strip()))
    return isinstance(value, list | dict)

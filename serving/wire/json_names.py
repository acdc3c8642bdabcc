"""Finds names that a JSON object has twice: one reader takes the first value, another the last."""

import contextlib
import json
import re
from collections import Counter
from typing import Any

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


def repeated_name(text: bytes, value: Any) -> str | None:
    """Returns a name that an object in `text` has twice, or None; `value` is the parsed `text`.

    >>> repeated_name(b'{"a": {"b": 1, "b": 2}}', {"a": {"b": 2}})
    'b'
    """
    colons = text.count(b":")
    # Each name has a colon. Most bodies have no other, and are not looked through.
    if (type(value) is dict and colons == len(value)) or colons == _count_names(value, 1):
        return None
    if _STRING.sub(b"", text).count(b":") == _count_names(value, None):
        return None
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        found.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)

    with contextlib.suppress(ValueError, RecursionError):
        json.loads(text, object_pairs_hook=look)
    return found[0] if found else ""


# Counts the names of all objects; skips lists whose first `most` values are neither lists nor objects.
def _count_names(value: Any, most: int | None) -> int:
    names, level = 0, [[value]]
    while level:
        inner: list[Any] = []
        for one in level:
            if type(one) is dict:
                names += len(one)
                inner += one.values()
            elif not {list, dict}.isdisjoint(map(type, one[:most])):
                inner += one
        level = [one for one in inner if type(one) is dict or type(one) is list]
    return names

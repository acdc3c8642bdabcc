"""Reads columns of texts, of whatever library, by position, and makes batches of rows."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfrecords.base.errors import UserError, refuse

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def is_one(texts: Any) -> bool:
    """Returns whether `texts` is one string."""
    return isinstance(texts, (str, bytes))


def items(texts: Any, name: str, of: str = "strings") -> list[Any]:
    """Converts a column, such as a generator, an array, a pandas Series or a pyarrow column, to a list by position.

    Raises UserError for a string, a table, or an unordered collection.
    """
    if is_one(texts):
        raise UserError(f"{name} is one string; give a list of {of}" + (f": [{texts!r}]" if of == "strings" else ""))
    kind = type(texts).__name__
    refuse({
        f"{name} is a {kind}, a table; give one of its columns, such as table['text']":
            hasattr(texts, "columns") or hasattr(texts, "column_names"),
        f"{name} is a {kind}; give a list of {of}":
            isinstance(texts, (dict, set, frozenset)),
    })  # fmt: skip
    for method in ("to_pylist", "numpy"):
        if hasattr(texts, method):
            texts = getattr(texts, method)()
    try:
        return list(texts)
    except TypeError:
        raise UserError(f"{name} is a {kind}, {_shown(texts)}; give a list of {of}") from None


def strings(texts: Any, name: str) -> list[str]:
    """Converts a column of strings to a list; U+FFFD replaces lone surrogates. Raises UserError for other values."""
    found = items(texts, name)
    for number, text in enumerate(found):
        if isinstance(text, bytes):
            try:
                found[number] = text.decode("utf-8")
            except UnicodeDecodeError as error:
                place = f"{name}[{number}]"
                raise UserError(f"{place} is no UTF-8 (byte {error.start}); decode it, and give strings") from None
        elif not isinstance(text, str):
            raise UserError(f"{name}[{number}] is {_shown(text)}, a {type(text).__name__}; give strings")
    return whole_characters(found)


def whole_characters(value: Any) -> Any:
    """Replaces lone surrogates in a JSON value by U+FFFD."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [whole_characters(one) for one in value]
    if isinstance(value, dict):
        return {name: whole_characters(one) for name, one in value.items()}
    return value


def batches(sizes: Sequence[int], max_tokens: int | None = None, max_rows: int | None = None) -> Iterator[np.ndarray]:
    """Yields row numbers, sorted by size, in batches of at most `max_tokens` and `max_rows`."""
    if not len(sizes):
        raise UserError("there are no rows")
    for name, most in (("max_batch_tokens", max_tokens), ("batch_size", max_rows)):
        if most is not None and most < 1:
            raise UserError(f"{name} is {most}; it must be at least 1")
    order, start, total = np.argsort(sizes, kind="stable"), 0, 0
    for place, row in enumerate(order):
        is_full = max_tokens is not None and total + sizes[row] > max_tokens
        if place > start and (is_full or place - start == max_rows):
            yield order[start:place]
            start, total = place, 0
        total += sizes[row]
    yield order[start:]


def _shown(value: Any) -> str:
    return " ".join(repr(value).split())[:60]

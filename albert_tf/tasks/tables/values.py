"""Values of table cells; a wrong one raises a UserError that names the line."""

import ast
import decimal
import json
import math
import re
from collections.abc import Collection, Iterable
from typing import Any

from albert_tf.tasks.tables.reading import DataRow, Table
from tfrecords.base.errors import UserError

# Numbers with marks that Python does not read: thousands, decimal commas, per cent, currencies.
WRITTEN_NUMBER = re.compile(r"\s*[$€£¥]?\s*[+-]?\d+(?:[.,'\u2019 \u00a0\u202f]\d+)*\s*[%‰$€£¥]?\s*")
# The largest number that float32, in which models learn, holds.
LARGEST = 3.4028234663852886e38

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
_UNREADABLE = re.compile(r"""\[[\s\[]*['"].*['"][\s\]]*\]""", re.DOTALL)


def listed(value: Any) -> list | None:
    """Returns the list in a cell, as it is or as JSON, Python (pandas) and numpy write it; None if there is no list.

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


def label_text(value: Any) -> str:
    """Returns a class from JSON as text: 1 as "1", true as "true"."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def text_of(table: Table, row: DataRow, column: str, takes_empty: bool = False) -> str:
    """Returns the text in a row's column."""
    value = row.values[column]
    if not isinstance(value, str):
        fix = "give --task=tagging if its words have tags" if listed(value) else "fix the row"
        raise table.wrong(row, f"{column} {value!r} is not a text", fix)
    if not (value.strip() or takes_empty):
        raise _empty(table, row, column)
    return value


def _empty(table: Table, row: DataRow, column: str) -> UserError:
    return table.wrong(row, f"{column} is empty", "fill it or remove the row")


def check_known(table: Table, row: DataRow, what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raises UserError for a name that is not `known`; the message calls it `what`."""
    if unknown := [name for name in names if name not in known]:
        raise table.wrong(row, f"{what} '{unknown[0]}' is none of those trained on: {', '.join(known)}")


def class_of(table: Table, row: DataRow, column: str) -> str:
    """Returns a row's class; raises UserError for a list."""
    value = row.values[column]
    if is_list(value):
        kind = "an object" if isinstance(value, dict) or str(value).startswith("{") else "a list"
        raise table.wrong(row, f"{column} {value!r} is {kind}", "give each text one label, or --task=multilabel")
    # pandas writes NaN and null where a cell was empty.
    if value is None or value != value:
        raise _empty(table, row, column)
    # Of Parquet's types, bytes and times would give names such as "b'good'".
    if not isinstance(value, str | int | float | decimal.Decimal):
        raise table.wrong(row, f"{column} {value!r} is neither a text nor a number", "write texts")
    return label_text(value)


def number_of(table: Table, row: DataRow, column: str, low: float = -LARGEST, high: float = LARGEST) -> float:
    """Returns a row's number; raises UserError unless it is from `low` to `high`."""
    value = row.values[column]
    try:
        # Python reads 1_000 and True as numbers; in a table they are none.
        is_number = not isinstance(value, bool) and "_" not in str(value)
        number = float(value) if is_number else math.nan
    except (TypeError, ValueError):
        number = math.nan
    except OverflowError:
        number = math.inf
    if low <= number <= high:
        return number
    expected, fix = "a number" if high == LARGEST else f"a number from {low:g} to {high:g}", "fix the row"
    if abs(number) > LARGEST:
        expected = f"a number that float32 holds, up to {LARGEST:.2g}"
    elif isinstance(value, str) and WRITTEN_NUMBER.fullmatch(value):
        fix = "write digits and a decimal point alone, as 1250.75"
        fix += ", or give --task=classification if these are names" * (high == LARGEST)
    raise table.wrong(row, f"{column} {value!r} is not {expected}", fix)


def labels_of(table: Table, row: DataRow, column: str) -> list[str]:
    """Returns the names of a row's labels, which must differ."""
    value = row.values[column]
    names = listed(value)
    if names is None or not all(isinstance(name, str) and name.strip() for name in names):
        raise table.wrong(row, f"{column} {value!r} is no list of names", """write names, as ["joy", "anger"] or []""")
    if len(set(names)) < len(names):
        raise table.wrong(row, f"{column} {value!r} names a label twice", "name it once")
    return names


def words_of(table: Table, row: DataRow, column: str, are_tags: bool = False) -> list[str]:
    """Returns the words of a row: a list, or a text split at white space; raises UserError for tags as [O, B-PER]."""
    value = row.values[column]
    words = listed(value)
    if words is None and isinstance(value, str):
        # Split at white space it would give tags such as [B-LOC, with a bracket and a comma.
        if are_tags and is_list(value):
            fix = """write names, as ["B-LOC", "O"] or separated by spaces"""
            raise table.wrong(row, f"{column} {value!r} is a list without quoted names", fix)
        if _UNREADABLE.fullmatch(value.strip()):
            raise table.wrong(row, f"{column} is a list in a list, or not all of one", "write all words in one list")
        words = value.split()
    if not (words and all(isinstance(word, str) for word in words)):
        raise table.wrong(row, f"{column} {value!r} is no list of words, nor words separated by spaces")
    return words


def tagged_words(table: Table, row: DataRow, text_column: str, label_column: str) -> tuple[list[str], list[str]]:
    """Returns the words of a row and equally many tags."""
    words, tags = words_of(table, row, text_column), words_of(table, row, label_column, are_tags=True)
    if len(tags) != len(words):
        raise table.wrong(row, f"{len(words)} words but {len(tags)} tags", "give every word one")
    if any("," in tag.strip(",") and tag.count(",") == word.count(",") for word, tag in zip(words, tags)):
        raise table.wrong(row, "words and tags are separated by commas", "separate them by spaces")
    return words, tags


def names_of(kind: str, table: Table, row: DataRow, column: str) -> tuple[str, ...]:
    """Returns a row's different labels for a kind of task; () for regression."""
    if kind == "multilabel":
        return tuple(labels_of(table, row, column))
    if kind == "tagging":
        return tuple(sorted(set(words_of(table, row, column, are_tags=True))))
    if kind == "regression":
        number_of(table, row, column)
        return ()
    label = class_of(table, row, column)
    if not label.strip():
        raise _empty(table, row, column)
    return (label,)

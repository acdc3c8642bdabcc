"""Values of table cells, and the kind of task that labels suit; an error names the line."""

import ast
import decimal
import json
import math
import re
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from tfrecords.base.errors import UserError
from tfrecords.base.tables import DataRow

# The largest number that float32, in which models learn, holds.
LARGEST = 3.4028234663852886e38

# How tables write that a number is missing.
_MISSING = ("n/a", "na", "nan", "null", "none", "missing", "unknown", "-", "?", "#n/a")
# Among so many numbers one value may be none, and is reported.
_FEW = 10
_NUMBER = re.compile(r"\s*[+-]?\d+(?:([.,])(\d+))?([eE][+-]?\d+)?\s*")
# Numbers with marks that Python does not read: thousands, decimal commas, minus signs, per cent, currencies.
_WRITTEN_NUMBER = re.compile(r"\s*[$€£¥]?\s*[+\-\u2212]?\d+(?:[.,'\u2019 \u00a0\u202f]\d+)*\s*[%‰$€£¥]?\s*")

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


class Labels(NamedTuple):
    """The task that a label column suits.

    `decimal_comma`: whether its numbers are written like 4,5. `has_missing`: whether its values are whole numbers but
    for words such as n/a.
    """

    kind: str
    decimal_comma: bool = False
    has_missing: bool = False


def kind_of_labels(values: Iterable[Any]) -> Labels:
    """Returns the task for labels: "multilabel" for lists, "regression" for fractions, else "classification".

    Numbers with thousands, per cent or currency signs count as fractions, which reading refuses.
    A comma is read as a decimal comma if no value has a point and at least one comma is not followed by three digits.

    >>> kind_of_labels(["4,5", "3", "2,25"])
    Labels(kind='regression', decimal_comma=True, has_missing=False)
    >>> kind_of_labels(["5", "1"]).kind, kind_of_labels(["1.0", "0.0"]).kind, kind_of_labels([["joy"], []]).kind
    ('classification', 'classification', 'multilabel')
    """
    marks, is_fraction, is_decimal = set[str](), False, False
    numbers = written = missing = others = 0
    for value in values:
        if not others and listed(value) is not None:
            return Labels("multilabel")
        # Reading reports an empty cell with its line.
        if value is None or value != value or value == "":
            continue
        text = label_text(value)
        if number := None if isinstance(value, bool) else _NUMBER.fullmatch(text):
            numbers += 1
            mark, fraction, exponent = number.groups(default="")
            marks |= set(mark)
            is_fraction |= bool(exponent or fraction.strip("0"))
            is_decimal |= mark == "," and len(fraction) != 3
        elif is_missing(value):
            missing += 1
        elif _WRITTEN_NUMBER.fullmatch(text):
            written += 1
        else:
            others += 1
    # Reading names the rows whose numbers it cannot read, and the few that are none among many fractions.
    if (is_fraction or written) and others * _FEW <= numbers + written:
        return Labels("regression", marks == {","} and is_decimal and not written)
    return Labels("classification", has_missing=bool(missing and numbers) and not others)


def is_missing(value: Any) -> bool:
    """Returns whether a value is a word such as n/a, by which tables say that a number is missing."""
    return isinstance(value, str) and value.strip().casefold() in _MISSING


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
        if isinstance(found, list) and _are_texts(found):
            return found
    except (ValueError, RecursionError):
        pass
    try:
        return [ast.literal_eval(item) for item in _STRINGS.findall(text)] if _LIST.fullmatch(text) else None
    except (ValueError, SyntaxError):
        return None


def _are_texts(values: list) -> bool:
    return all(isinstance(one, str) for one in values)


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


def text_of(row: DataRow, column: str, takes_empty: bool = False) -> str:
    """Returns the text in a row's column."""
    value = row.values[column]
    if not isinstance(value, str):
        fix = "give --task=tagging if its words have tags" if listed(value) else "fix the row"
        raise row.wrong(f"{column} {value!r} is not a text", fix)
    if not (value.strip() or takes_empty):
        raise _empty(row, column)
    return value


def _empty(row: DataRow, column: str) -> UserError:
    return row.wrong(f"{column} is empty", "fill it or remove the row")


def check_known(row: DataRow, what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raises UserError for a name that is not `known`; the message calls it `what`."""
    if unknown := [name for name in names if name not in known]:
        raise row.wrong(f"{what} '{unknown[0]}' is none of those trained on: {', '.join(known)}")


def class_of(row: DataRow, column: str) -> str:
    """Returns a row's class; raises UserError for a list."""
    value = row.values[column]
    if is_list(value):
        kind = "an object" if isinstance(value, dict) or str(value).startswith("{") else "a list"
        raise row.wrong(f"{column} {value!r} is {kind}", "give each text one label, or --task=multilabel")
    # pandas writes NaN and null where a cell was empty.
    if value is None or value != value:
        raise _empty(row, column)
    # Of Parquet's types, bytes and times would give names such as "b'good'".
    if not isinstance(value, str | int | float | decimal.Decimal):
        raise row.wrong(f"{column} {value!r} is neither a text nor a number", "write texts")
    return label_text(value)


def number_of(row: DataRow, column: str, low: float = -LARGEST, high: float = LARGEST) -> float:
    """Returns a row's number; raises UserError unless it is from `low` to `high`."""
    value = row.values[column]
    try:
        # Python reads 1_000 and True as numbers; in a table they are none.
        number = math.nan if isinstance(value, bool) or "_" in str(value) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    except OverflowError:
        number = math.inf
    if low <= number <= high:
        return number
    expected, fix = "a number" if high == LARGEST else f"a number from {low:g} to {high:g}", "fix the row"
    if abs(number) > LARGEST:
        expected = f"a number that float32 holds, up to {LARGEST:.2g}"
    elif isinstance(value, str) and _WRITTEN_NUMBER.fullmatch(value):
        fix = "write digits and a decimal point alone, as 1250.75"
        fix += ", or give --task=classification if these are names" * (high == LARGEST)
    raise row.wrong(f"{column} {value!r} is not {expected}", fix)


def labels_of(row: DataRow, column: str) -> list[str]:
    """Returns the names of a row's labels, which must differ."""
    value = row.values[column]
    names = listed(value)
    if names is None or not _are_texts(names) or not all(map(str.strip, names)):
        raise row.wrong(f"{column} {value!r} is no list of names", """write names, as ["joy", "anger"] or []""")
    if len(set(names)) < len(names):
        raise row.wrong(f"{column} {value!r} names a label twice", "name it once")
    return names


def words_of(row: DataRow, column: str, are_tags: bool = False) -> list[str]:
    """Returns the words of a row: a list, or a text split at white space; raises UserError for tags as [O, B-PER]."""
    value = row.values[column]
    words = listed(value)
    if words is None and isinstance(value, str):
        # Split at white space it would give tags such as [B-LOC, with a bracket and a comma.
        if are_tags and is_list(value):
            fix = """write names, as ["B-LOC", "O"] or separated by spaces"""
            raise row.wrong(f"{column} {value!r} is a list without quoted names", fix)
        if _UNREADABLE.fullmatch(value.strip()):
            raise row.wrong(f"{column} is a list in a list, or not all of one", "write all words in one list")
        words = value.split()
    if not (words and _are_texts(words)):
        raise row.wrong(f"{column} {value!r} is no list of words, nor words separated by spaces")
    return words


def tagged_words(row: DataRow, text_column: str, label_column: str) -> tuple[list[str], list[str]]:
    """Returns the words of a row and equally many tags."""
    words, tags = words_of(row, text_column), words_of(row, label_column, are_tags=True)
    if len(tags) != len(words):
        raise row.wrong(f"{len(words)} words but {len(tags)} tags", "give every word one")
    if any("," in tag.strip(",") and tag.count(",") == word.count(",") for word, tag in zip(words, tags)):
        raise row.wrong("words and tags are separated by commas", "separate them by spaces")
    return words, tags


def names_of(kind: str, row: DataRow, column: str) -> tuple[str, ...]:
    """Returns a row's different labels for a kind of task; () for regression."""
    if kind == "multilabel":
        return tuple(labels_of(row, column))
    if kind == "tagging":
        return tuple(sorted(set(words_of(row, column, are_tags=True))))
    if kind == "regression":
        number_of(row, column)
        return ()
    label = class_of(row, column)
    if not label.strip():
        raise _empty(row, column)
    return (label,)

"""Values of table cells; a wrong one raises a UserError that names the line."""

import decimal
import math
import re
from collections.abc import Collection, Iterable
from typing import Any

from albert_tf.tasks.tables import cells
from albert_tf.tasks.tables.reading import DataRow, Table
from tfrecords.base.errors import UserError

# The largest number that float32, in which models learn, holds.
LARGEST = 3.4028234663852886e38


def text_of(table: Table, row: DataRow, column: str, takes_empty: bool = False) -> str:
    """Returns the text in a row's column."""
    value = row.values[column]
    if not isinstance(value, str):
        raise table.wrong(row, f"{column} {value!r} is not a text")
    if not (value.strip() or takes_empty):
        raise _empty(table, row, column)
    return value


def _empty(table: Table, row: DataRow, column: str) -> UserError:
    return table.wrong(row, f"{column} is empty", "fill it or remove the row")


def check_known(table: Table, row: DataRow, what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raises UserError for a name that is not `known`; the message calls it `what`."""
    if unknown := [name for name in names if name not in known]:
        raise table.wrong(row, f"{what} '{unknown[0]}' is none of those trained on: {', '.join(known)}")


def label_text(value: Any) -> str:
    """Returns a class from JSON as text: 1 as "1", true as "true"."""
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def class_of(table: Table, row: DataRow, column: str) -> str:
    """Returns a row's class; raises UserError for a list."""
    value = row.values[column]
    if cells.is_list(value):
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
    elif isinstance(value, str) and re.fullmatch(r"\s*-?\d+,\d+\s*", value):
        fix = "write a decimal point"
    raise table.wrong(row, f"{column} {value!r} is not {expected}", fix)


def labels_of(table: Table, row: DataRow, column: str) -> list[str]:
    """Returns the names of a row's labels, which must differ."""
    value = row.values[column]
    names = cells.listed(value)
    if names is None or not all(isinstance(name, str) and name.strip() for name in names):
        raise table.wrong(row, f"{column} {value!r} is no list of names", """write names, as ["joy", "anger"] or []""")
    if len(set(names)) < len(names):
        raise table.wrong(row, f"{column} {value!r} names a label twice", "name it once")
    return names


def words_of(table: Table, row: DataRow, column: str) -> list[str]:
    """Returns the words of a row: a list, or a text split at white space."""
    value = row.values[column]
    words = cells.listed(value)
    if words is None and isinstance(value, str):
        if cells.UNREADABLE.fullmatch(value.strip()):
            raise table.wrong(row, f"{column} is a list in a list, or not all of one", "write all words in one list")
        words = value.split()
    if not (words and all(isinstance(word, str) for word in words)):
        raise table.wrong(row, f"{column} {value!r} is no list of words, nor words separated by spaces")
    return words


def tags_of(table: Table, row: DataRow, column: str) -> list[str]:
    """Returns a row's tags; raises UserError for a text such as [O, B-PER]."""
    value = row.values[column]
    if isinstance(value, str) and cells.listed(value) is None and cells.is_list(value):
        # Read as words it would give tags such as [B-LOC, with a bracket and a comma.
        fix = """write names, as ["B-LOC", "O"] or separated by spaces"""
        raise table.wrong(row, f"{column} {value!r} is a list without quoted names", fix)
    return words_of(table, row, column)


def tagged_words(table: Table, row: DataRow, text_column: str, label_column: str) -> tuple[list[str], list[str]]:
    """Returns the words of a row and equally many tags."""
    words, tags = words_of(table, row, text_column), tags_of(table, row, label_column)
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
        return tuple(sorted(set(tags_of(table, row, column))))
    if kind == "regression":
        number_of(table, row, column)
        return ()
    label = class_of(table, row, column)
    if not label.strip():
        raise _empty(table, row, column)
    return (label,)

"""Detection of a table's columns and of its labels' kind."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from albert_tf.tasks.tables.values import WRITTEN_NUMBER, label_text, listed
from tfrecords.base.errors import UserError

# Names that identify a column, in any case. The role itself wins if there are others.
_ROLES = {
    "text": (
        *("text", "sentence", "review", "body", "content", "message", "comment", "tweet", "document", "description"),
        *("utterance", "review_text", "reviewtext", "review_body", "comment_text", "satz", "rezension", "kommentar"),
        *("nachricht", "inhalt", "beschreibung", "tokens", "words"),
    ),
    "label": (
        *("label", "class", "target", "sentiment", "category", "labels", "rating", "score", "stars", "intent"),
        *("topic", "polarity", "y", "klasse", "kategorie", "stimmung", "thema", "sterne", "tags", "ner_tags"),
    ),
    # Of pairs of texts.
    "anchor": ("anchor", "query", "question", "sentence1", "sentence_1", "sentence_a", "text1", "premise", "text"),
    "positive": (
        *("positive", "answer", "passage", "document", "sentence2", "sentence_2", "sentence_b", "text2"),
        *("response", "hypothesis"),
    ),
    "score": ("score", "label", "similarity", "similarity_score", "relatedness_score"),
}
# How tables write that a number is missing.
_MISSING = ("n/a", "na", "nan", "null", "none", "missing", "unknown", "-", "?", "#n/a")
# Among so many numbers one value may be none, and is reported.
_FEW = 10
_NUMBER = re.compile(r"\s*[+-]?\d+(?:([.,])(\d+))?([eE][+-]?\d+)?\s*")


def find_column(path: Path, columns: Sequence[str], role: str, flag: str = "") -> str:
    """Returns the one column whose name marks it as the "text" or "label" (`role`).

    >>> find_column(Path("a.csv"), ["id", "Review", "Sentiment"], "text")
    'Review'
    """
    names, there = _ROLES[role], ", ".join(map(repr, columns))
    flag = f"--{flag or f'{role}_column'}=..."
    found = [column for column in columns if column.strip().casefold() in names]
    exact = [column for column in found if column.strip().casefold() == role]
    if len(exact) == 1 or len(found) == 1:
        return (exact or found)[0]
    if found:
        several = " and ".join(map(repr, found))
        raise UserError(f"'{path}' line 1: {several} may each be the {role}; it has {there}; give {flag}")
    fix = f"give {flag}, or put a line of names above the first row if there is none"
    like = ", ".join(names[1:5])
    raise UserError(f"'{path}' line 1: no column '{role}', nor {like} or the like; it has {there}; {fix}")


def optional_column(path: Path, columns: Sequence[str], role: str, flag: str) -> str:
    """Returns the column whose name marks it as `role` ("anchor", "positive" or "score"), or "" without one."""
    if not any(column.strip().casefold() in _ROLES[role] for column in columns):
        return ""
    return find_column(path, columns, role, flag)


class Labels(NamedTuple):
    """The task that a label column suits; `decimal_comma`: whether its numbers are written like 4,5."""

    kind: str
    decimal_comma: bool = False


def kind_of_labels(values: Iterable[Any]) -> Labels:
    """Returns the task for labels: "multilabel" for lists, "regression" for fractions, else "classification".

    Numbers with thousands, per cent or currency signs count as fractions, which reading refuses.
    A comma is read as a decimal comma if no value has a point and at least one comma is not followed by three digits.

    >>> kind_of_labels(["4,5", "3", "2,25"])
    Labels(kind='regression', decimal_comma=True)
    >>> kind_of_labels(["5", "1"]).kind, kind_of_labels(["1.0", "0.0"]).kind, kind_of_labels([["joy"], []]).kind
    ('classification', 'classification', 'multilabel')
    """
    marks, is_fraction, is_decimal = set[str](), False, False
    numbers, written, others = 0, 0, 0
    for value in values:
        if not others and listed(value) is not None:
            return Labels("multilabel")
        # Reading reports an empty cell with its line.
        if value is None or value != value or value == "":
            continue
        text = label_text(value)
        if isinstance(value, bool) or not (found := _NUMBER.fullmatch(text)):
            is_written = bool(WRITTEN_NUMBER.fullmatch(text))
            written += is_written
            others += not is_written and text.strip().casefold() not in _MISSING
            continue
        numbers += 1
        is_fraction |= bool(found[3])
        if found[1]:
            marks.add(found[1])
            is_fraction |= found[2].strip("0") != ""
            is_decimal |= found[1] == "," and len(found[2]) != 3
    decimal_comma = marks == {","} and is_decimal and not written
    # Reading names the rows whose numbers it cannot read, and the few that are none among many fractions.
    is_regression = (is_fraction or written > 0) and others * _FEW <= numbers + written
    return Labels("regression" if is_regression else "classification", decimal_comma and is_regression)

"""Detects separator and quoting of a user's table."""

import csv
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from tfrecords.base.text_files import ending

SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "pipes"}
# Excel's Unicode text ends in .txt.
_BY_ENDING = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t", ".psv": "|"}
# The endings of tables with cells and separators.
SEPARATED = tuple(_BY_ENDING)
# The line that Excel writes and reads above the header: sep=;
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[\r\n]*')
# Characters of a file that determine its separator.
_HEAD_CHARACTERS = 1 << 16
# A row of cells that are quoted where they need it: a cell with a quotation mark is quoted and the mark doubled.
_CELL = r'(?:"(?:[^"]++|"")*+"|[^"\t\r\n]*+)'
_QUOTED_ROW = re.compile(rf"{_CELL}(?:\t{_CELL})*+[\r\n]*")
_LONGEST_CELL = 1 << 24
# Names with the same separator between all of them. A line with a blank is more likely a text than a header.
_NAMES = re.compile(r"\w+([^\w\s]+)\w+(?:\1\w+)*")


class TableFormat(NamedTuple):
    """How a table's cells are written; `doubtful`: number of the first line whose quotation marks may be text, or 0."""

    separator: str
    quoted: bool = True
    skipped: int = 0
    doubtful: int = 0


# GLUE's files do not quote: a quotation mark is text.
PUBLISHED = TableFormat("\t", quoted=False)


def find_format(path: str | os.PathLike, read_lines: Callable[[], Iterator[str]]) -> TableFormat:
    """Detects separator and quoting of a file.

    The file's ending sets the separator, unless only another separator gives header and first row equally many cells.
    Tab-separated cells count as quoted if all quotation marks are as pandas writes them and some are necessary.

    >>> find_format("a.csv", lambda: iter(["text;label\\n", "Good, all in all;1\\n"])).separator
    ';'
    """
    head = list(_head(read_lines()))
    skipped, separator = 0, _BY_ENDING[ending(path)]
    if head and (named := _SEPARATOR_LINE.fullmatch(head[0])):
        skipped, separator = 1, named[1]
    else:
        others = [other for other in SEPARATORS if other != separator]
        separator = next((one for one in (separator, *others) if _fits(head, one)), separator)
    if separator != "\t":
        return TableFormat(separator, skipped=skipped)
    quoted, doubtful = _tab_quotes(itertools.islice(read_lines(), skipped, None))
    return TableFormat(separator, quoted, skipped, doubtful + skipped * bool(doubtful))


def other_separator(columns: Sequence[str]) -> str:
    """Returns a remedy if a header of one column seems to use another separator, else "".

    >>> other_separator(["text^label"])
    "if '^' separates its columns, write commas, tabs, semicolons or pipes instead"
    >>> other_separator(["The film isn't bad."])
    ''
    """
    if len(columns) == 1 and (known := next((one for one in SEPARATORS if one in columns[0]), "")):
        return f"{known!r} splits the header, but not the first row into as many columns; fix that row"
    found = _NAMES.fullmatch(columns[0].strip()) if len(columns) == 1 else None
    *names, last = SEPARATORS.values()
    return f"if {found[1]!r} separates its columns, write {', '.join(names)} or {last} instead" if found else ""


def _head(lines: Iterable[str]) -> Iterator[str]:
    size = 0
    for line in lines:
        yield line
        size += len(line)
        if size > _HEAD_CHARACTERS:
            return


def _fits(lines: Sequence[str], separator: str) -> bool:
    reader = csv.reader(lines, delimiter=separator)
    try:
        header, row = next(reader, []), next((cells for cells in reader if cells), [])
    except csv.Error:
        return False
    return len(header) > 1 and len(row) in (len(header), 0)


def _tab_quotes(lines: Iterable[str]) -> tuple[bool, int]:
    width, needed, rows_fit, doubtful = 0, False, True, 0
    for start, record in _records_with_marks(lines):
        if not _QUOTED_ROW.fullmatch(record):
            return False, 0
        (cells,) = csv.reader(record.splitlines(keepends=True), delimiter="\t")
        marks = record.count('"')
        if start == 1:
            width = len(cells)
            needed = marks >= 2 * width
        if len(cells) != width and marks:
            return False, 0
        needed |= any('"' in cell for cell in cells)
        rows_fit &= all(line.count("\t") + 1 == width for line in record.split("\n") if line)
        doubtful = doubtful or (start if marks else 0)
    is_quoted = needed or not rows_fit
    return is_quoted, 0 if is_quoted else doubtful


def _records_with_marks(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    waiting: list[str] = []
    is_open, size, start = False, 0, 0
    for number, line in enumerate(lines, 1):
        marks = line.count('"')
        if not (marks or waiting or number == 1):
            continue
        start = start if waiting else number
        waiting.append(line)
        size += len(line)
        is_open ^= bool(marks % 2)
        if not is_open or size > _LONGEST_CELL:
            yield start, "".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield start, "".join(waiting)

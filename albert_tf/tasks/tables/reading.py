"""Tables with named columns; docs/reference/tasks.md says which are accepted."""

import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from absl import logging

from albert_tf.tasks.tables.lines import read_lines
from tfrecords.base import files
from tfrecords.base.columns import whole_characters
from tfrecords.base.errors import UserError, first_line
from tfrecords.base.text_files import LONGEST_LINE, ending, is_json_lines

PARQUET = ".parquet"
_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "pipes"}
# Excel's Unicode text ends in .txt.
SEPARATED = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t", ".psv": "|"}
# A cell may be a whole document; the csv module's own limit is 128 kB.
csv.field_size_limit(LONGEST_LINE)
# The line that Excel writes and reads above the header: sep=;
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[\r\n]*')
# Characters of a file that determine its separator.
_HEAD_CHARACTERS = 1 << 16
# A row of cells that are quoted where they need it: a cell with a quotation mark is quoted and the mark doubled.
_CELL = r'(?:"(?:[^"]++|"")*+"|[^"\t\r\n]*+)'
_QUOTED_ROW = re.compile(rf"{_CELL}(?:\t{_CELL})*+[\r\n]*")


# Wrong rows that an error describes.
_MOST_DESCRIBED = 5
_Item = TypeVar("_Item")
_Read = TypeVar("_Read")


def read_all(items: Iterable[_Item], read: Callable[[_Item], _Read | None]) -> Iterator[_Read]:
    """Yields what `read` returns unless it is None; the first UserError is raised with those of all later items."""
    errors = []
    for item in items:
        try:
            found = read(item)
        except UserError as error:
            errors.append(str(error))
        else:
            if found is not None and not errors:
                yield found
    if errors:
        path = errors[0].partition("' ")[0] + "' "
        others = [error.removeprefix(path).rpartition("; ")[0] or error for error in errors[1:_MOST_DESCRIBED]]
        if more := len(errors) - 1 - len(others):
            others.append(f"{more:,} more rows")
        raise UserError(errors[0] + f" (also {', '.join(others)})" * bool(others))


class DataRow(NamedTuple):
    """A row of a table; `line`: where it starts in its file, from 1."""

    line: int
    values: dict[str, Any]


class Table(NamedTuple):
    """The rows of a file, which can be read once; a broken row raises UserError when reached."""

    path: Path
    columns: tuple[str, ...]
    rows: Iterator[DataRow]

    def wrong(self, row: DataRow, what: str, fix: str = "fix the row") -> UserError:
        place = "row" if ending(self.path) == PARQUET else "line"
        return UserError(f"'{self.path}' {place} {row.line}: {what}; {fix}")

    def require(self, columns: Sequence[str], fix: str = "name the columns so") -> "Table":
        """Returns the table; raises UserError if the header or, when read, a row lacks a column."""
        missing = [f"'{name}'" for name in columns if name not in self.columns]
        if missing:
            # The only difference may be an invisible mark or a blank.
            there = ", ".join(map(repr, self.columns))
            raise UserError(f"'{self.path}' line 1: no column {', '.join(missing)}; it has {there}; {fix}")
        return self._replace(rows=self._having(columns))

    def _having(self, columns: Sequence[str]) -> Iterator[DataRow]:
        for row in self.rows:
            if missing := [name for name in columns if name not in row.values]:
                raise self.wrong(row, f"no {', '.join(missing)}, which the first line has")
            yield row


def read_table(
    path: Path,
    header: Sequence[str] | None = None,
    skip_broken: bool = False,
    published: bool = False,
    encoding: str | None = None,
) -> Table:
    """Reads separated cells, JSON lines (both optionally gzipped) or Parquet, according to the file's ending.

    `header` names the columns of a file without a header line; `published` is for GLUE's files, whose cells are never
    quoted. `encoding` is as in `read_lines`.
    """
    if ending(path) == PARQUET:
        return _table(path, *_parquet(path))
    if is_json_lines(path):
        return read_json_lines(path, encoding)
    rows = _filled(_cells(path, encoding, published))
    if header is None:
        _, header = next(rows, (0, ()))
    return _table(path, header, _rows(path, rows, header, skip_broken))


def read_json_lines(path: Path, encoding: str | None = None) -> Table:
    """Reads a file with one JSON object per line."""
    return _table(path, None, _objects(path, encoding))


def _table(path: Path, columns: Sequence[str] | None, rows: Iterator[DataRow]) -> Table:
    # Spreadsheets write columns without a name.
    names = list(filter(None, columns or ()))
    if len(set(names)) < len(names):
        place = " line 1" * (ending(path) != PARQUET)
        raise UserError(f"'{path}'{place}: a column is there twice in {', '.join(names)}; rename one")
    first = next(rows, None)
    if first is None:
        raise UserError(f"'{path}' holds no rows; give a file with at least one")
    return Table(path, tuple(first.values if columns is None else columns), itertools.chain([first], rows))


def _cells(path: Path, encoding: str | None, published: bool) -> Iterator[tuple[int, list[str]]]:
    separator, quoted, skipped = ("\t", False, 0) if published else _format(path, encoding)
    lines = itertools.islice(read_lines(path, encoding), skipped, None)
    if not quoted:
        for number, line in enumerate(lines, 1 + skipped):
            line = line.rstrip("\r\n")
            yield number, line.split("\t") if line else []
        return
    reader, start = csv.reader(lines, delimiter=separator, strict=True), 1 + skipped
    try:
        for cells in reader:
            yield start, cells
            start = reader.line_num + 1 + skipped
    except csv.Error as error:
        what = f"not CSV ({error}); quote a cell that holds a quote"
        if "new-line character" in str(error):
            what = "a carriage return (CR) stands alone; make line ends LF, or take it out of the cell"
        raise UserError(f"'{path}' line {start}: {what}") from error


def _format(path: Path, encoding: str | None) -> tuple[str, bool, int]:
    """Returns the separator, whether quotation marks quote, and how many lines stand above the header.

    The file's ending sets the separator, unless only another separator gives header and first row equally many cells.
    Tab-separated cells count as quoted if all quotation marks are as pandas writes them and some are necessary.
    """
    size, head = 0, []
    for line in read_lines(path, encoding):
        head.append(line)
        size += len(line)
        if size > _HEAD_CHARACTERS:
            break
    separator = SEPARATED[ending(path)]
    named = _SEPARATOR_LINE.fullmatch(head[0]) if head else None
    if named:
        separator = named[1]
    else:
        separator = next((one for one in (separator, *_SEPARATORS) if _fits(head, one)), separator)
    is_quoted, skipped = True, int(named is not None)
    if separator == "\t":
        is_quoted = _tab_quotes(itertools.islice(read_lines(path, encoding), skipped, None))
    return separator, is_quoted, skipped


def _fits(lines: Sequence[str], separator: str) -> bool:
    reader = csv.reader(lines, delimiter=separator)
    try:
        header, row = next(reader, []), next((cells for cells in reader if cells), [])
    except csv.Error:
        return False
    return len(header) > 1 and len(row) in (len(header), 0)


def _tab_quotes(lines: Iterable[str]) -> bool:
    """Returns whether quotation marks quote: all are as pandas writes them, and some are needed."""
    width, is_quoted = 0, False
    row: list[str] = []

    def first_and_marked() -> Iterator[str]:
        for line in lines:
            if row or '"' in line or not (width or line.isspace()):
                row.append(line)
                yield line

    try:
        for cells in csv.reader(first_and_marked(), delimiter="\t"):
            text = "".join(row)
            # All names are quoted.
            is_quoted |= not width and text.count('"') >= 2 * len(cells)
            width = width or len(cells)
            if '"' in text:
                if not _QUOTED_ROW.fullmatch(text) or len(cells) != width:
                    return False
                # Marks that are text would be single, or leave lines of other lengths.
                is_quoted |= any('"' in cell for cell in cells)
                is_quoted |= any(line.count("\t") + 1 != width for line in text.split("\n") if line)
            row.clear()
    except csv.Error:
        return False
    return is_quoted


def _filled(rows: Iterable[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    # Skips blank lines. In a table of one column, blank lines between rows become empty cells.
    width, blank = 0, list[int]()
    for number, cells in rows:
        if not cells:
            blank.append(number)
            continue
        if width == 1:
            yield from ((before, [""]) for before in blank)
        width, blank = width or len(cells), []
        yield number, cells


def _rows(
    path: Path, cells: Iterator[tuple[int, list[str]]], header: Sequence[str], skip_broken: bool
) -> Iterator[DataRow]:
    broken = []

    def row(numbered: tuple[int, list[str]]) -> DataRow | None:
        line, values = numbered
        if line > 1 < len(header) and [value.removeprefix("\ufeff") for value in values] == list(header):
            raise UserError(f"'{path}' line {line}: the header again, as of another file; remove this line")
        if len(values) == len(header):
            return DataRow(line, dict(zip(header, values)))
        if not skip_broken:
            raise UserError(
                f"'{path}' line {line}: {len(values)} columns, expected {len(header)} ({', '.join(header)}); "
                "fix the row"
            )
        broken.append(line)
        return None

    yield from read_all(cells, row)
    if broken:
        logging.warning("'%s': %d broken rows passed over, the first at line %d", path, len(broken), broken[0])


def _objects(path: Path, encoding: str | None) -> Iterator[DataRow]:
    def row(numbered: tuple[int, str]) -> DataRow | None:
        number, line = numbered
        if not line.strip():
            return None
        fix = "write one object a line" + ", as jq -c '.[]' does of an array" * line.lstrip().startswith("[")
        try:
            values = whole_characters(json.loads(line, object_pairs_hook=_object))
        except (ValueError, RecursionError) as error:
            raise UserError(f"'{path}' line {number}: not JSON ({error}); {fix}") from error
        if not isinstance(values, dict):
            raise UserError(f"'{path}' line {number}: not a JSON object; {fix}")
        return DataRow(number, values)

    return read_all(enumerate(read_lines(path, encoding), 1), row)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(f"a key is there twice in {', '.join(name for name, _ in pairs)}")
    return values


def _parquet(path: Path) -> tuple[tuple[str, ...], Iterator[DataRow]]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(f"'{path}' is Parquet, which needs pyarrow: pip install '.[parquet]'") from error
    # Python has no form for some of its times, and its binding decodes a damaged name.
    damaged = OSError, ValueError, OverflowError, pyarrow.ArrowException

    def batches() -> Iterator[Any]:
        try:
            file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
            yield tuple(file.schema_arrow.names)
            for batch in file.iter_batches():
                yield from batch.to_pylist()
        except damaged as error:
            raise UserError(f"cannot read '{path}' as Parquet: {first_line(error)}") from error

    found = batches()
    return next(found), itertools.starmap(DataRow, enumerate(found, 1))


def write_table(path: Path, header: Sequence[str], lines: Iterable[Sequence]) -> Path:
    """Writes a TSV, or a CSV if the name says so, atomically."""
    with files.replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t", lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)
    return path

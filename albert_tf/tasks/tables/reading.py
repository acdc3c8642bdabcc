"""Tables with named columns; docs/reference/tasks.md says which are accepted."""

import csv
import gzip
import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from albert_tf.tasks.tables import parquet
from albert_tf.tasks.tables.lines import decoded_lines, limited
from albert_tf.tasks.tables.table_format import PUBLISHED, TableFormat, find_format, other_separator
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.base.text_files import (
    LONGEST_LINE,
    encoding_of,
    ending,
    foreign_kind,
    is_gzipped,
    is_json_lines,
    read_head,
)

# A cell may be a whole document; the csv module's own limit is 128 kB.
csv.field_size_limit(LONGEST_LINE)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# A training file is read twice, for its classes and for its rows.
_WARNED: set[Path] = set()
# Bytes of a file that determine the name of another encoding.
_ENCODING_BYTES = 1 << 16


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
        place = "row" if ending(self.path) == parquet.ENDING else "line"
        return UserError(f"'{self.path}' {place} {row.line}: {what}; {fix}")

    def require(self, columns: Sequence[str], fix: str = "name the columns so") -> "Table":
        """Returns the table; raises UserError if the header or, when read, a row lacks a column."""
        missing = [f"'{name}'" for name in columns if name not in self.columns]
        if missing:
            # The only difference may be an invisible mark or a blank.
            there = ", ".join(map(repr, self.columns))
            fix = other_separator(self.columns) or fix
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
    quoted. An `encoding` of "" means the byte-order mark's; None, or no mark, means UTF-8.
    """
    if ending(path) == parquet.ENDING:
        columns, values = parquet.read(path)
        _check_names(f"'{path}'", columns)
        return _checked(path, (DataRow(number, row) for number, row in enumerate(values, 1)), columns)
    if is_json_lines(path):
        return read_json_lines(path, encoding)
    written = PUBLISHED if published else find_format(path, lambda: _lines(path, encoding))
    if written.doubtful and path not in _WARNED:
        _WARNED.add(path)
        logging.warning(
            "'%s' line %d: a cell begins and ends with a quotation mark; marks are read as text, since no cell shows "
            'that they are not, as one with "" or a tab in it would',
            path,
            written.doubtful,
        )
    lines = itertools.islice(_lines(path, encoding), written.skipped, None)
    cells = _csv_cells(path, lines, written) if written.quoted else _tab_cells(lines, written)
    return _columns(path, _filled(cells), header, skip_broken)


def _lines(path: Path, encoding: str | None = None) -> Iterator[str]:
    if encoding is not None and (found := decoded_lines(path, encoding)):
        yield from found
        return
    opener: Callable = gzip.open if is_gzipped(path) else open
    number = 0
    try:
        if kind := foreign_kind(read_head(path)):
            raise UserError(f"'{path}' is {kind}, no table in UTF-8; write it as CSV or JSON lines in UTF-8")
        with opener(path, "rb") as file:
            for number, line in enumerate(limited(file, path), 1):
                # Some published files begin with a byte order mark.
                try:
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    what = encoding_of(line + file.read(_ENCODING_BYTES), most=0) or error.reason
                    codec = re.search(r"iconv -f (\S+)", what)
                    flag = f"--encoding={codec[1] if codec else '...'}"
                    fix = "convert the file to UTF-8" + f", or add {flag}" * (encoding is not None)
                    raise UserError(f"'{path}' line {number}: not UTF-8: {what}; {fix}") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        fix = "fetch it again, or take .gz off its name if it is not packed"
        raise UserError(f"cannot read '{path}' past line {number}: {error}; {fix}") from error
    except OSError as error:
        raise UserError(f"cannot read '{path}' past line {number}: {error}") from error


def _tab_cells(lines: Iterable[str], written: TableFormat) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, 1 + written.skipped):
        line = line.rstrip("\r\n")
        yield number, line.split("\t") if line else []


def _csv_cells(path: Path, lines: Iterable[str], written: TableFormat) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(lines, delimiter=written.separator, strict=True)
    start = 1 + written.skipped
    try:
        for cells in reader:
            yield start, cells
            start = reader.line_num + 1 + written.skipped
    except csv.Error as error:
        if "new-line character" in str(error):
            raise _carriage_return(path, start) from error
        raise UserError(f"'{path}' line {start}: not CSV ({error}); quote a cell that holds a quote") from error


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


def _carriage_return(path: Path, line: int) -> UserError:
    return UserError(
        f"'{path}' line {line}: a carriage return (CR) stands alone; make line ends LF, or take it out of the cell"
    )


def _columns(
    path: Path, cells: Iterator[tuple[int, list[str]]], header: Sequence[str] | None, skip_broken: bool
) -> Table:
    if header is None:
        _, header = next(cells, (0, ()))
        if any("\r" in name for name in header):
            raise _carriage_return(path, 1)
    _check_names(f"'{path}' line 1", header)
    return _checked(path, _rows(path, cells, header, skip_broken), tuple(header))


def _check_names(place: str, columns: Sequence[str]) -> None:
    if len(set(columns)) < len(columns):
        raise UserError(f"{place}: a column is there twice in {', '.join(columns)}; rename one")


def _rows(
    path: Path, cells: Iterator[tuple[int, list[str]]], header: Sequence[str], skip_broken: bool
) -> Iterator[DataRow]:
    broken = []
    for line, values in cells:
        if line > 1 < len(header) and [value.removeprefix("\ufeff") for value in values] == list(header):
            raise UserError(f"'{path}' line {line}: the header again, as of another file; remove this line")
        if len(values) == len(header):
            yield DataRow(line, dict(zip(header, values)))
        elif skip_broken:
            broken.append(line)
        else:
            raise UserError(
                f"'{path}' line {line}: {len(values)} columns, expected {len(header)} ({', '.join(header)}); "
                + (other_separator(header) or "fix the row")
            )
    if broken:
        logging.warning("'%s': %d broken rows passed over, the first at line %d", path, len(broken), broken[0])


def read_json_lines(path: Path, encoding: str | None = None) -> Table:
    """Reads a file with one JSON object per line."""
    return _checked(path, _objects(path, encoding))


def _objects(path: Path, encoding: str | None) -> Iterator[DataRow]:
    for number, line in enumerate(_lines(path, encoding), 1):
        if not line.strip():
            continue
        try:
            values = whole_characters(json.loads(line, object_pairs_hook=_object))
        except (ValueError, RecursionError) as error:
            raise UserError(f"'{path}' line {number}: not JSON ({error}); {_objects_of(line)}") from error
        if not isinstance(values, dict):
            raise UserError(f"'{path}' line {number}: not a JSON object; {_objects_of(line)}")
        yield DataRow(number, values)


def _objects_of(line: str) -> str:
    return "write one object a line" + ", as jq -c '.[]' does of an array" * line.lstrip().startswith("[")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(f"a key is there twice in {', '.join(name for name, _ in pairs)}")
    return values


def whole_characters(value: Any) -> Any:
    """Replaces lone surrogates in a JSON value by U+FFFD."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [whole_characters(one) for one in value]
    if isinstance(value, dict):
        return {name: whole_characters(one) for name, one in value.items()}
    return value


def _checked(path: Path, rows: Iterator[DataRow], columns: tuple[str, ...] | None = None) -> Table:
    first = next(rows, None)
    if first is None:
        raise UserError(f"'{path}' holds no rows; give a file with at least one")
    return Table(path, tuple(first.values) if columns is None else columns, itertools.chain([first], rows))


def write_table(path: Path, header: Sequence[str], lines: Iterable[Sequence]) -> Path:
    """Writes a TSV, or a CSV if the name says so, atomically."""
    with files.replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t", lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)
    return path

"""Reads tables: bytes to text, text to numbered rows, rows to values, columns by their roles.

docs/reference/tasks.md says which tables are accepted.
"""

import codecs
import csv
import dataclasses
import gzip
import io
import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, AnyStr, NamedTuple, TypeVar

from absl import logging

from tfrecords.base import files
from tfrecords.base.columns import whole_characters
from tfrecords.base.errors import UserError, first_line
from tfrecords.base.text_files import (
    JSON_LINES,
    LONGEST_LINE,
    NOT_UTF8,
    encoding_of,
    ending,
    foreign_kind,
    is_gzipped,
    is_json_lines,
    read_head,
)

PARQUET = ".parquet"
# Separators by endings. Excel's Unicode text ends in .txt.
SEPARATED = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".txt": "\t", ".psv": "|"}
ENDINGS = (*SEPARATED, *JSON_LINES, PARQUET)
_SEPARATORS = ",\t;|"
# A cell may be a whole document; the csv module's own limit is 128 kB.
csv.field_size_limit(LONGEST_LINE)
# The line that Excel writes and reads above the header: sep=;
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[\r\n]*')
# A row of cells that are quoted where they need it: a cell with a quotation mark is quoted and the mark doubled.
_CELL = r'(?:"(?:[^"]++|"")*+"|[^"\t\r\n]*+)'
_QUOTED_ROW = re.compile(rf"{_CELL}(?:\t{_CELL})*+[\r\n]*")
_MARKS = {
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
# Bytes or characters behind the first wrong one that determine the name of another encoding.
_SAMPLE = 1 << 16
# Wrong rows that an error describes.
_MOST_DESCRIBED = 5
# Names that identify a column, in any case. The role itself wins if there are others.
_ROLES = {
    "text": "text sentence review body content message comment tweet document description utterance review_text "
    "reviewtext review_body comment_text satz rezension kommentar nachricht inhalt beschreibung tokens words",
    "label": "label class target sentiment category labels rating score stars intent topic polarity y klasse kategorie "
    "stimmung thema sterne tags ner_tags",
    # Of pairs of texts.
    "anchor": "anchor query question sentence1 sentence_1 sentence_a text1 premise text",
    "positive": "positive answer passage document sentence2 sentence_2 sentence_b text2 response hypothesis",
    "score": "score label similarity similarity_score relatedness_score",
}
_Item = TypeVar("_Item")
_Read = TypeVar("_Read")


def read_all(items: Iterable[_Item], read: Callable[[_Item], _Read | None]) -> Iterator[_Read]:
    """Yields what `read` returns unless it is None; the first UserError is raised with those of all later items."""
    errors, items = list[str](), iter(items)
    while True:
        try:
            found = read(next(items))
        except StopIteration:
            break
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

    path: Path
    line: int
    values: dict[str, Any]

    def wrong(self, what: str, fix: str = "fix the row") -> UserError:
        """Returns an error that names the row."""
        place = "row" if ending(self.path) == PARQUET else "line"
        return UserError(f"'{self.path}' {place} {self.line}: {what}; {fix}")


@dataclasses.dataclass(frozen=True)
class Table:
    """The rows of a file, which can be read once.

    `items` are the rows as they stand in the file, and `parse` reads one; None passes it over.
    """

    path: Path
    columns: tuple[str, ...]
    items: Iterator[Any]
    parse: Callable[[Any], DataRow | None]

    def read(self, value: Callable[[DataRow], _Read | None]) -> Iterator[_Read]:
        """Yields the value of each row unless it is None; one UserError describes the wrong rows."""
        return read_all(self.items, self._then(value))

    @property
    def rows(self) -> Iterator[DataRow]:
        return read_all(self.items, self.parse)

    def changed(self, change: Callable[[DataRow], DataRow | None]) -> "Table":
        """Returns the table with changed rows; None passes a row over."""
        return dataclasses.replace(self, parse=self._then(change))

    def only(self, chosen: Iterable[bool]) -> "Table":
        """Returns the table with the chosen rows."""
        return dataclasses.replace(self, items=itertools.compress(self.items, chosen))

    def _then(self, value: Callable[[DataRow], _Read | None]) -> Callable[[Any], _Read | None]:
        def read(item: Any) -> _Read | None:
            row = self.parse(item)
            return None if row is None else value(row)

        return read

    def require(self, columns: Sequence[str], fix: str = "name the columns so") -> "Table":
        """Returns the table; raises UserError if the header or, when read, a row lacks a column."""
        if missing := [f"'{name}'" for name in columns if name not in self.columns]:
            # The only difference may be an invisible mark or a blank.
            there = ", ".join(map(repr, self.columns))
            raise UserError(f"'{self.path}' line 1: no column {', '.join(missing)}; it has {there}; {fix}")

        def having(row: DataRow) -> DataRow:
            if missing := [name for name in columns if name not in row.values]:
                raise row.wrong(f"no {', '.join(missing)}, which the first line has")
            return row

        return self.changed(having)


def check_encoding(encoding: str) -> None:
    """Raises UserError if Python has no text encoding of this name."""
    try:
        "".encode(encoding)
    except LookupError:
        known = "such as cp1252, latin-1, utf-16 or mac_roman"
        raise UserError(f"--encoding={encoding} is unknown; give one that Python knows, {known}") from None


def read_lines(path: Path, encoding: str | None = None) -> Iterator[str]:
    """Yields a file's lines with their ends.

    The encoding is that of a UTF-16 or UTF-32 byte-order mark, else `encoding`, else UTF-8. None means that the user
    cannot name one, so that no message advises it.
    """
    number, has_utf8 = 0, False
    try:
        head = read_head(path)
        marked = next((name for name, marks in _MARKS.items() if head.startswith(marks)), "")
        codec, errors = marked or encoding or "utf-8", "strict"
        if codecs.lookup(codec).name in ("utf-8", "utf-8-sig", "ascii"):
            codec, errors = "utf-8", "surrogateescape"
            if kind := foreign_kind(head):
                raise UserError(f"'{path}' is {kind}, no table in UTF-8; write it as CSV or JSON lines in UTF-8")
        elif not marked and _has_utf8(path):
            raise UserError(f"'{path}' is UTF-8, not {codec}; leave out --encoding")
        with _opened(path) as file, io.TextIOWrapper(file, codec, errors, newline="\n") as text:
            for number, line in enumerate(_limited(text, path), 1):
                if not line.isascii():
                    if NOT_UTF8.search(line):
                        rest = b"" if has_utf8 else (line + text.read(_SAMPLE)).encode("utf-8", errors)
                        advice = _advice(rest, encoding is not None)
                        raise UserError(f"'{path}' line {number}: not UTF-8: {advice}")
                    has_utf8 = True
                yield line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeError as error:
        fix = "convert the file to UTF-8" if marked or encoding is None else "give another --encoding"
        raise UserError(f"'{path}' after line {number}: not {codec} ({error.args[-1]}); {fix}") from error
    except (OSError, EOFError, zlib.error) as error:
        is_damaged = not isinstance(error, OSError) or isinstance(error, gzip.BadGzipFile)
        fix = "; fetch it again, or take .gz off its name if it is not packed" * is_damaged
        raise UserError(f"cannot read '{path}' past line {number}: {error}{fix}") from error


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if is_gzipped(path) else open(path, "rb")


def _limited(file: IO[AnyStr], path: Path) -> Iterator[AnyStr]:
    for number in itertools.count(1):
        line = file.readline(LONGEST_LINE + 1)
        if len(line) > LONGEST_LINE:
            raise UserError(f"'{path}' line {number} is longer than {LONGEST_LINE:,}; is a line end missing?")
        if not line:
            return
        yield line


def _has_utf8(path: Path) -> bool:
    # Whether there are characters that are not ASCII, most of them in UTF-8.
    with _opened(path) as file:
        first = next((line for line in _limited(file, path) if not line.isascii()), b"")
        return bool(first) and encoding_of(first + file.read(_SAMPLE), most=0) is None


def _advice(data: bytes, has_flag: bool) -> str:
    if not (what := encoding_of(data, most=0)):
        return "it holds damaged bytes; fix the row"
    codec = re.search(r"iconv -f (\S+)", what)
    flag = f", or add --encoding={codec[1] if codec else '...'}" * has_flag
    return f"{what}; convert the file to UTF-8{flag}"


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
        rows = _parquet(path)
        return _table(path, next(rows), enumerate(rows, 1), lambda numbered: DataRow(path, *numbered))
    if is_json_lines(path):
        return read_json_lines(path, encoding)
    cells = _filled(_cells(path, encoding, published))
    if header is None:
        _, header = next(cells, (0, ()))

    def kept() -> Iterator[tuple[int, list[str]]]:
        broken = []
        for line, values in cells:
            if skip_broken and len(values) != len(header):
                broken.append(line)
            else:
                yield line, values
        if broken:
            logging.warning("'%s': %d broken rows passed over, the first at line %d", path, len(broken), broken[0])

    def parse(numbered: tuple[int, list[str]]) -> DataRow:
        line, values = numbered
        row = DataRow(path, line, dict(zip(header, values)))
        if line > 1 < len(header) and [value.removeprefix("\ufeff") for value in values] == list(header):
            raise row.wrong("the header again, as of another file", "remove this line")
        if len(values) != len(header):
            raise row.wrong(f"{len(values)} columns, expected {len(header)} ({', '.join(header)})")
        return row

    return _table(path, header, kept(), parse)


def read_json_lines(path: Path, encoding: str | None = None) -> Table:
    """Reads a file with one JSON object per line."""

    def parse(numbered: tuple[int, str]) -> DataRow:
        number, line = numbered
        row = DataRow(path, number, {})
        fix = "write one object a line" + ", as jq -c '.[]' does of an array" * line.lstrip().startswith("[")
        try:
            values = whole_characters(json.loads(line, object_pairs_hook=_object))
        except (ValueError, RecursionError) as error:
            raise row.wrong(f"not JSON ({error})", fix) from error
        if not isinstance(values, dict):
            raise row.wrong("not a JSON object", fix)
        return row._replace(values=values)

    lines = enumerate(read_lines(path, encoding), 1)
    return _table(path, None, (numbered for numbered in lines if numbered[1].strip()), parse)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(f"a key is there twice in {', '.join(name for name, _ in pairs)}")
    return values


def _table(path: Path, header: Sequence[str] | None, items: Iterator, parse: Callable) -> Table:
    # Spreadsheets write columns without a name.
    names = list(filter(None, header or ()))
    if len(set(names)) < len(names):
        place = " line 1" * (ending(path) != PARQUET)
        raise UserError(f"'{path}'{place}: a column is there twice in {', '.join(names)}; rename one")
    if (first := next(items, None)) is None:
        raise UserError(f"'{path}' holds no rows; give a file with at least one")
    row = next(read_all(itertools.chain([first], items), parse))
    return Table(path, tuple(row.values if header is None else header), itertools.chain([first], items), parse)


def _cells(path: Path, encoding: str | None, published: bool) -> Iterator[tuple[int, list[str]]]:
    separator, skipped, is_quoted = ("\t", 0, False) if published else _format(path, encoding)
    lines = itertools.islice(read_lines(path, encoding), skipped, None)
    if not is_quoted:
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


def _format(path: Path, encoding: str | None) -> tuple[str, int, bool]:
    """Returns the separator, how many lines stand above the header, and whether quotation marks quote.

    The file's ending sets the separator, unless only another separator gives header and first row equally many cells.
    """
    separator = SEPARATED[ending(path)]
    if named := _SEPARATOR_LINE.fullmatch(next(read_lines(path, encoding), "")):
        separator = named[1]
    else:
        fitting = (one for one in separator + _SEPARATORS if _fits(read_lines(path, encoding), one))
        separator = next(fitting, separator)
    skipped = int(named is not None)
    lines = itertools.islice(read_lines(path, encoding), skipped, None)
    return separator, skipped, separator != "\t" or _tab_quotes(lines)


def _fits(lines: Iterable[str], separator: str) -> bool:
    rows = filter(None, csv.reader(lines, delimiter=separator))
    try:
        header, row = next(rows, []), next(rows, [])
    except csv.Error:
        return False
    return len(header) > 1 and len(row) in (len(header), 0)


def _tab_quotes(lines: Iterable[str]) -> bool:
    """Returns whether quotation marks between tabs quote: all are as pandas writes them, and some are needed."""
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
            row.clear()
            # All names are quoted.
            is_quoted |= not width and text.count('"') >= 2 * len(cells)
            width = width or len(cells)
            if '"' in text:
                if not _QUOTED_ROW.fullmatch(text) or len(cells) != width:
                    return False
                # Marks that are text would be single, or leave lines of other lengths.
                is_quoted |= '"' in "".join(cells) or any(
                    line.count("\t") + 1 != width for line in text.split("\n") if line
                )
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


def _parquet(path: Path) -> Iterator[Any]:
    # Yields the names of the columns, then rows.
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(f"'{path}' is Parquet, which needs pyarrow: pip install '.[parquet]'") from error
    try:
        file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
        yield tuple(file.schema_arrow.names)
        for batch in file.iter_batches():
            yield from batch.to_pylist()
    # Python has no form for some of its times, and its binding decodes a damaged name.
    except (OSError, ValueError, OverflowError, pyarrow.ArrowException) as error:
        raise UserError(f"cannot read '{path}' as Parquet: {first_line(error)}") from error


def find_column(path: Path, columns: Sequence[str], role: str, flag: str = "", is_optional: bool = False) -> str:
    """Returns the column whose name marks it as `role`, such as "text"; "" if none does and it `is_optional`.

    >>> find_column(Path("a.csv"), ["id", "Review", "Sentiment"], "text")
    'Review'
    """
    names = _ROLES[role].split()
    there, flag = ", ".join(map(repr, columns)), f"--{flag or f'{role}_column'}=..."
    found = [column for column in columns if column.strip().casefold() in names]
    exact = [column for column in found if column.strip().casefold() == role]
    if len(exact) == 1 or len(found) == 1:
        return (exact or found)[0]
    if found:
        several = " and ".join(map(repr, found))
        raise UserError(f"'{path}' line 1: {several} may each be the {role}; it has {there}; give {flag}")
    if is_optional:
        return ""
    fix = f"give {flag}, or put a line of names above the first row if there is none"
    like = ", ".join(names[1:5])
    raise UserError(f"'{path}' line 1: no column '{role}', nor {like} or the like; it has {there}; {fix}")


def write_table(path: Path, header: Sequence[str], lines: Iterable[Sequence]) -> Path:
    """Writes a TSV, or a CSV if the name says so, atomically."""
    with files.replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t", lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)
    return path

"""Reads the rows of files, tables, JSON lines or plain text, in pieces."""

import contextlib
import gzip
import itertools
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tfrecords.base.columns import whole_characters
from tfrecords.base.errors import UserError
from tfrecords.base.files import matches, patterns_of
from tfrecords.base.tables import ENDINGS, find_column, read_table
from tfrecords.base.text_files import TABLES, check_text, ending, is_gzipped, is_json_lines, read_head, refuse_table

LONGEST_LINE = 2**24
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# Number of rows to check before the job.
_FIRST_ROWS = 100


@dataclass(frozen=True)
class Piece:
    """The lines of a file that begin at byte `start` or later and before byte `end`.

    `lines` is the file that is read, which has a line for each row of `path`; `fields` name the texts in JSON rows.
    """

    path: str
    start: int
    end: int
    lines: str
    fields: tuple[str, ...] = ()


@dataclass(slots=True)
class InputRow:
    """A row: the model's input texts and the copied fields, or an error and its line."""

    texts: tuple[bytes, ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    line: bytes = b""

    def refuse(self, error: str) -> None:
        self.error, self.line = error, b"\t".join(self.texts)


def find_files(patterns: str) -> list[Path]:
    """Returns the files of comma-separated globs, sorted; UserError if a file cannot be read as rows."""
    found: set[str] = set()
    for pattern in patterns_of(patterns):
        names = [name for name in matches(pattern) if os.path.isfile(name)]
        if not names:
            raise UserError(f"--input={pattern} matches no file; give files or globs, as --input='rows/*.jsonl'")
        found.update(names)
    paths = sorted(found)
    if packed := [name for name in paths if name.lower().endswith((".bz2", ".xz", ".zst"))]:
        raise UserError(f"'{packed[0]}' is packed; unpack it, or pack it as .gz")
    for name in paths:
        if not _is_table(name):
            refuse_table(name)
            check_text(name, read_head(name))
    return list(map(Path, paths))


def _is_table(path: str | os.PathLike) -> bool:
    return ending(path) in TABLES and ending(path) in ENDINGS


@contextlib.contextmanager
def as_lines(paths: Sequence[Path], folder: Path) -> Iterator[dict[Path, Path]]:
    """Yields, for each path, a file with a line for each row: itself or, for tables and packed files, one in `folder`.

    Raises UserError for a broken table. The folder is removed at the end.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield {path: _as_lines(path, folder / str(number)) for number, path in enumerate(paths)}
    finally:
        shutil.rmtree(folder)


def _as_lines(path: Path, place: Path) -> Path:
    if _is_table(path):
        place = place.with_suffix(".jsonl")
        with open(place, "w", encoding="utf-8") as file:
            for row in read_table(path).rows:
                # Parquet has times and decimal numbers, which JSON has not.
                file.write(json.dumps(row.values, ensure_ascii=False, default=str) + "\n")
    elif is_gzipped(path):
        place = place.with_suffix(ending(path))
        try:
            with gzip.open(path) as packed, open(place, "wb") as file:
                shutil.copyfileobj(packed, file)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"cannot read '{path}': {error}; fetch it again") from error
    else:
        return path
    return place


def cut(paths: Mapping[Path, Path] | Sequence[Path], piece_bytes: int, inputs: Sequence[str] = ()) -> list[Piece]:
    """Cuts files into pieces, in order; an empty file is one piece.

    `paths` may map each file to the one that `as_lines` made. `inputs` are the model's, if no fields are given.
    """
    pieces = []
    for path in paths:
        lines = paths[path] if isinstance(paths, Mapping) else path
        size, fields = lines.stat().st_size, _fields(path, lines, inputs)
        starts = range(0, max(size, 1), piece_bytes)
        pieces += [Piece(str(path), start, min(start + piece_bytes, size), str(lines), fields) for start in starts]
    return pieces


def _fields(path: Path, lines: Path, inputs: Sequence[str]) -> tuple[str, ...]:
    # A single text may have another name in the rows, as in training.
    if len(inputs) != 1 or not is_json_lines(lines):
        return tuple(inputs)
    for line in itertools.islice(_lines(Piece(str(path), 0, lines.stat().st_size, str(lines))), _FIRST_ROWS):
        try:
            found = _object(line)
        except ValueError:
            continue
        if inputs[0] not in found and (name := find_column(path, tuple(found), "text", "fields", is_optional=True)):
            return (name,)
        break
    return tuple(inputs)


def check_fields(pieces: Sequence[Piece], fields: Sequence[str]) -> None:
    """Raises UserError if every one of the first rows is invalid."""
    rows = ((piece.path, row) for piece in pieces for row in read(piece, fields))
    first = None
    for path, row in itertools.islice(rows, _FIRST_ROWS):
        if not row.error:
            return
        first = first or f"none of the first rows of '{path}' can be answered: {row.error}; see --fields"
    if first:
        raise UserError(first)


def read(piece: Piece, fields: Sequence[str], keep: Sequence[str] = ()) -> Iterator[InputRow]:
    """Reads the rows of a piece; in JSON rows, `fields` name the input texts and `keep` the copied fields.

    A piece's own fields come first.
    """
    parse, fields = _parse_json if is_json_lines(piece.lines) else _parse_text, piece.fields or fields
    for line in _lines(piece):
        try:
            if len(line) > LONGEST_LINE:
                raise ValueError(f"the line is longer than {LONGEST_LINE} bytes")
            yield parse(line, fields, keep)
        except ValueError as error:
            yield InputRow(error=str(error), line=line[:LONGEST_LINE])


def _lines(piece: Piece) -> Iterator[bytes]:
    with open(piece.lines, "rb") as file:
        if piece.start:
            # A line that begins before `start` belongs to the previous piece.
            file.seek(piece.start - 1)
            _skip_line(file)
        while file.tell() < piece.end:
            # A byte order mark is not part of the text.
            if not file.tell() and file.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
                file.seek(0)
            line = file.readline(LONGEST_LINE + 1)
            if len(line) > LONGEST_LINE and not line.endswith(b"\n"):
                _skip_line(file)
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def _skip_line(file) -> None:
    while (part := file.readline(LONGEST_LINE)) and not part.endswith(b"\n"):
        pass


def _parse_text(line: bytes, fields: Sequence[str], keep: Sequence[str]) -> InputRow:
    if len(fields) > 1:
        raise ValueError(f"a line of text is one text, the model takes {len(fields)}; give JSON lines")
    line.decode()
    return InputRow((line,))


def _object(line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as refused:
        # NaN as Python writes it, and half a surrogate, which training reads.
        try:
            found = whole_characters(json.loads(line))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ValueError(f"not a JSON object: {refused}") from refused
        return found


def _parse_json(line: bytes, fields: Sequence[str], keep: Sequence[str]) -> InputRow:
    found, texts = _object(line), []
    for name in fields:
        if not isinstance(found.get(name), str):
            what = "is missing" if name not in found else "is not a string"
            raise ValueError(f"the field '{name}' {what}")
        texts.append(found[name].encode())
    return InputRow(tuple(texts), {name: found.get(name) for name in keep})

"""Decodes tables that are not in UTF-8."""

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, AnyStr

from tfrecords.base.errors import UserError
from tfrecords.base.text_files import LONGEST_LINE, is_gzipped, read_head

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_UTF8 = ("utf-8", "utf-8-sig", "ascii")


def marked_encoding(path: Path) -> str:
    """Returns the encoding of a file's byte-order mark; "" for UTF-8 or without a mark."""
    head = read_head(path)
    return next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")


def check_encoding(encoding: str) -> None:
    """Raises UserError if Python has no text encoding of this name."""
    try:
        "".encode(encoding)
    except LookupError:
        known = "such as cp1252, latin-1, utf-16 or mac_roman"
        raise UserError(f"--encoding={encoding} is unknown; give one that Python knows, {known}") from None


def limited(file: IO[AnyStr], path: Path) -> Iterator[AnyStr]:
    """Yields a file's lines; raises UserError if a line is too long."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise UserError(f"'{path}' line {number} is longer than {LONGEST_LINE:,}; is a line end missing?")
        yield line


def decoded_lines(path: Path, encoding: str) -> Iterator[str] | None:
    """Returns a file's decoded lines; None for UTF-8. An `encoding` of "" means the byte-order mark's."""
    try:
        name = encoding or marked_encoding(path)
    except (OSError, EOFError) as error:
        raise UserError(f"cannot read '{path}': {error}") from error
    if not name or codecs.lookup(name).name in _UTF8:
        return None
    return _decoded(path, name)


def _decoded(path: Path, encoding: str) -> Iterator[str]:
    number = 0
    try:
        head = read_head(path)
        if not head.isascii() and _is_utf8(head):
            raise UserError(f"'{path}' is UTF-8, not {encoding}; leave out --encoding")
        with gzip.open(path) if is_gzipped(path) else open(path, "rb") as file:
            for number, line in enumerate(limited(io.TextIOWrapper(file, encoding, newline="\n"), path), 1):
                yield line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeError as error:
        raise UserError(
            f"'{path}' after line {number}: not {encoding} ({error.args[-1]}); give another --encoding"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read '{path}' past line {number}: {error}") from error


def _is_utf8(head: bytes) -> bool:
    try:
        # The last character may be cut off.
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True

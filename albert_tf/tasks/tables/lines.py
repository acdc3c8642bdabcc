"""Reads the lines of a text file, plain or gzipped, in UTF-8 or another encoding."""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, AnyStr

from tfrecords.base.errors import UserError
from tfrecords.base.text_files import LONGEST_LINE, encoding_of, foreign_kind, is_gzipped, read_head

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Bytes or characters behind the first wrong one that determine the name of another encoding.
_SAMPLE = 1 << 16


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
    number, advice = 0, encoding is not None
    try:
        head = read_head(path)
        marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
        codec = marked or encoding or "utf-8"
        is_utf8 = codecs.lookup(codec).name in ("utf-8", "utf-8-sig", "ascii")
        if is_utf8 and (kind := foreign_kind(head)):
            raise UserError(f"'{path}' is {kind}, no table in UTF-8; write it as CSV or JSON lines in UTF-8")
        if not (is_utf8 or marked) and _has_utf8(path):
            raise UserError(f"'{path}' is UTF-8, not {codec}; leave out --encoding")
        codec, errors = ("utf-8", "surrogateescape") if is_utf8 else (codec, "strict")
        has_utf8 = False
        with _opened(path) as file, io.TextIOWrapper(file, codec, errors, newline="\n") as text:
            for number, line in enumerate(_limited(text, path), 1):
                if not line.isascii():
                    if not _is_whole(line):
                        rest = (line + text.read(_SAMPLE)).encode("utf-8", errors)
                        raise _not_utf8(f"'{path}' line {number}", b"" if has_utf8 else rest, advice)
                    has_utf8 = True
                yield line.removeprefix("\ufeff") if number == 1 else line
    except UnicodeError as error:
        fix = "convert the file to UTF-8" if marked or not advice else "give another --encoding"
        raise UserError(f"'{path}' after line {number}: not {codec} ({error.args[-1]}); {fix}") from error
    except (OSError, EOFError, zlib.error) as error:
        is_damaged = not isinstance(error, OSError) or isinstance(error, gzip.BadGzipFile)
        fix = "; fetch it again, or take .gz off its name if it is not packed" * is_damaged
        raise UserError(f"cannot read '{path}' past line {number}: {error}{fix}") from error


def _opened(path: Path) -> IO[bytes]:
    return gzip.open(path) if is_gzipped(path) else open(path, "rb")


def _limited(file: IO[AnyStr], path: Path) -> Iterator[AnyStr]:
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            raise UserError(f"'{path}' line {number} is longer than {LONGEST_LINE:,}; is a line end missing?")
        yield line


def _has_utf8(path: Path) -> bool:
    # Whether there are characters that are not ASCII, most of them in UTF-8.
    with _opened(path) as file:
        lines = (line for line in _limited(file, path) if not line.isascii())
        first = next(lines, b"")
        return bool(first) and encoding_of(first + file.read(_SAMPLE), most=0) is None


def _is_whole(line: str) -> bool:
    try:
        return bool(line.encode())
    except UnicodeEncodeError:
        return False


def _not_utf8(place: str, data: bytes, advice: bool) -> UserError:
    if what := encoding_of(data, most=0):
        codec = re.search(r"iconv -f (\S+)", what)
        flag = f", or add --encoding={codec[1] if codec else '...'}" * advice
        return UserError(f"{place}: not UTF-8: {what}; convert the file to UTF-8{flag}")
    return UserError(f"{place}: not UTF-8: it holds damaged bytes; fix the row")

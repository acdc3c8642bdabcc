"""Cuts corpus files into sections for parallel reading, and reads each as chunks of whole documents.

A section's content begins at the first document (or JSON line) at or after byte `start`.
"""

import contextlib
import gzip
import hashlib
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from tfrecords.base.errors import UserError
from tfrecords.base.files import matches
from tfrecords.base.text_files import (
    HEAD_BYTES,
    LONGEST_LINE,
    check_text,
    count_not_utf8,
    encoding_of,
    first_not_utf8,
    is_gzipped,
    is_json_lines,
)

# Text in a byte of a .gz file, roughly: enough to choose how many files to write before any is read.
_GZIP_RATIO = 3
_READ_BYTES = 1 << 20
_LINE_END = re.compile(rb"(?>\r\n?|\n)")
_BLANK_LINE = re.compile(rb"(?>\r\n?|\n)[ \t]*(?>\r\n?|\n)")


@dataclass(frozen=True)
class Section:
    """A file's bytes from `start` to before `end` (None: the file's end); readers round to whole documents."""

    path: str
    start: int = 0
    end: int | None = None


@dataclass(frozen=True)
class Chunk:
    """Consecutive whole documents of one file, with "\\n" as line ends.

    start: the section's first byte in the file. first_line: the chunk's first line in its section, from 1. not_utf8:
    number of bytes that became U+FFFD.
    """

    path: str
    start: int
    first_line: int
    data: bytes
    not_utf8: int = 0


def is_remote(path: str | os.PathLike) -> bool:
    """Returns whether fsspec reads this path, such as s3://bucket/file."""
    return "://" in str(path)


def find(pattern: str) -> list[str]:
    """Returns the files that match; patterns with "://" go to fsspec."""
    if not is_remote(pattern):
        return [name for name in matches(pattern) if os.path.isfile(name)]
    system, path = _remote(pattern)
    names = [name for name in ([path] if system.isfile(path) else system.glob(path)) if system.isfile(name)]
    return [system.unstrip_protocol(name) for name in names]


def size_of(path: str | os.PathLike) -> int:
    """Returns a local or remote file's size in bytes."""
    if not is_remote(path):
        return os.path.getsize(path)
    system, name = _remote(path)
    return system.size(name)


def text_bytes(path: str | os.PathLike) -> int:
    """Estimates a file's uncompressed size in bytes."""
    return size_of(path) * (_GZIP_RATIO if is_gzipped(path) else 1)


def plan_pieces(paths: Iterable[str | os.PathLike], piece_bytes: int) -> list[list[Section]]:
    """Divides files into pieces: lists of sections with about `piece_bytes` of text; .gz files stay whole."""
    pieces, filled = [], 0
    for path in paths:
        for section, size in _sections(str(path), piece_bytes):
            if not pieces or filled + size > piece_bytes:
                pieces.append([])
                filled = 0
            pieces[-1].append(section)
            filled += size
    return pieces


def _sections(path: str, piece_bytes: int) -> Iterator[tuple[Section, int]]:
    size = size_of(path)
    if is_gzipped(path):
        yield Section(path), text_bytes(path)
        return
    # Avoids a tiny last section.
    starts = list(range(0, max(size - piece_bytes // 4, 1), piece_bytes))
    for start, end in zip(starts, [*starts[1:], size]):
        yield Section(path, start, end), end - start


def digest(path: str | os.PathLike) -> str:
    """SHA-256 of a local or remote file."""
    with _opened(str(path)) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_chunks(section: Section, chunk_bytes: int = 8 << 20) -> Iterator[Chunk]:
    """Streams a section as chunks of about `chunk_bytes` of text; longer documents are cut at a line end.

    Raises UserError for an unreadable file or one not in UTF-8.
    """
    with _opened(section.path) as file:
        start, end = _bounds(file, section, chunk_bytes)
        first_line = 1
        for data in _cut(_clean_blocks(file, section.path, start, end), section.path, chunk_bytes):
            chunk = Chunk(section.path, start, first_line, data, count_not_utf8(data))
            if chunk.not_utf8 and (what := encoding_of(data)):
                line = line_number(chunk, data.count(b"\n", 0, first_not_utf8(data)))
                raise UserError(
                    f"corpus file '{section.path}' is {what}, not UTF-8 text, from line {line} on; convert the file"
                )
            yield chunk
            del chunk
            first_line += data.count(b"\n")
            del data


def line_number(chunk: Chunk, line: int) -> int:
    """Converts a line's index in the chunk, from 0, to its number in the file, from 1."""
    with _opened(chunk.path) as file:
        before = sum(block.count(b"\n") for block in _clean_blocks(file, chunk.path, 0, chunk.start))
    return before + chunk.first_line + line


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    try:
        if is_remote(path):
            system, name = _remote(path)
            file = system.open(name, "rb")
        else:
            file = open(path, "rb")  # noqa: SIM115
        with file:
            yield file
    except (EOFError, zlib.error) as error:
        raise UserError(f"corpus file '{path}' is damaged: {error}; copy it again") from error
    except OSError as error:
        raise UserError(f"cannot read corpus file '{path}': {error.strerror or error}") from error


def _remote(path: str | os.PathLike):
    try:
        import fsspec

        return fsspec.core.url_to_fs(str(path))
    except (ImportError, ValueError) as error:
        fix = ": pip install '.[remote]'" * isinstance(error, ImportError)
        raise UserError(f"cannot read '{path}' ({error}){fix}") from error


def _bounds(file: IO[bytes], section: Section, window: int) -> tuple[int, int | None]:
    if section.end is None:
        return section.start, None
    pattern = _LINE_END if is_json_lines(section.path) else _BLANK_LINE
    size = size_of(section.path)
    return tuple(_first_begin(file, offset, size, pattern, window) for offset in (section.start, section.end))


def _first_begin(file: IO[bytes], offset: int, size: int, pattern: re.Pattern, window: int) -> int:
    if offset in (0, size):
        return offset
    file.seek(offset)
    data = b""
    while True:
        block = file.read(max(len(data), 1 << 16))
        data += block
        for wanted, within in ((pattern, window), (_LINE_END, size)) if len(data) >= window else ((pattern, window),):
            found = wanted.search(data)
            # At the edge of what was read, "\r" may be half of "\r\n".
            if found and found.end() <= within and (found.end() < len(data) or not block):
                return offset + found.end()
        if not block:
            return size


def _cut(blocks: Iterable[bytes], path: str, chunk_bytes: int) -> Iterator[bytes]:
    separator = b"\n" if is_json_lines(path) else b"\n\n"
    waiting = bytearray()
    for block in blocks:
        waiting += block
        # Reads a quarter more before cutting, to avoid a tiny last chunk.
        while len(waiting) >= chunk_bytes + chunk_bytes // 4:
            end = waiting.rfind(separator, 0, chunk_bytes)
            end = end if end >= 0 else waiting.rfind(b"\n", 0, chunk_bytes)
            end = end if end >= 0 else waiting.find(b"\n", chunk_bytes)
            if end < 0:
                if len(waiting) > LONGEST_LINE + chunk_bytes:
                    raise UserError(
                        f"corpus file '{path}' has a line longer than {LONGEST_LINE:,}; is a line end missing?"
                    )
                break
            end += len(separator) if waiting[end : end + len(separator)] == separator else 1
            data = bytes(memoryview(waiting)[:end])
            del waiting[:end]
            yield data
            del data
    if waiting.strip():
        yield bytes(waiting)


def _clean_blocks(raw: IO[bytes], path: str, start: int, end: int | None) -> Iterator[bytes]:
    raw.seek(start)
    file = gzip.GzipFile(fileobj=raw) if is_gzipped(path) else raw
    left = sys.maxsize if end is None else end - start
    held = b""
    first = start == 0
    while block := file.read(min(left, _READ_BYTES)):
        left -= len(block)
        if first:
            check_text(path, block[:HEAD_BYTES], "corpus file ")
        block = held + (block.removeprefix(b"\xef\xbb\xbf") if first else block)
        first = False
        # A "\r" at the edge may be half of "\r\n"; spaces there may belong to a blank line.
        keep = len(block.rstrip(b" \t\r"))
        block, held = block[:keep], block[keep:]
        yield _clean_lines(block, is_json_lines(path))
    if held:
        yield _clean_lines(held, is_json_lines(path))


def _clean_lines(block: bytes, json_lines: bool) -> bytes:
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not json_lines and (b" \n" in block or b"\t\n" in block):
        block = b"\n".join(line.rstrip(b" \t") for line in block.split(b"\n"))
    return block

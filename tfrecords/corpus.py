"""Raw text in: files of plain text or JSON lines, plain or gzipped, streamed as documents of sentences.

Plain text (any suffix but .jsonl/.json): a blank line, or the end of a file, ends a document. JSON lines: a document a
line, its text under `text_field`. A line of text is one sentence, or a paragraph of them with `split_sentences`.
"""

import glob
import gzip
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tfrecords.errors import UserError
from tfrecords.sentences import split_paragraph

_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Chunk:
    """Consecutive documents of one file, still as bytes: what one worker is given.

    first_document: index of the first of them in the whole corpus. first_line: its line number in the file, from 1.
    size_on_disk: the bytes of the file that were read for it (of the compressed file for .gz).
    """

    path: str
    first_document: int
    num_documents: int
    first_line: int
    data: bytes
    size_on_disk: int


def find_files(patterns: str | Iterable[str]) -> list[Path]:
    """Files that match comma-separated globs, each once, sorted. Raises UserError when a pattern has no file."""
    patterns = patterns.split(",") if isinstance(patterns, str) else [str(pattern) for pattern in patterns]
    paths: set[Path] = set()
    for pattern in filter(None, (pattern.strip() for pattern in patterns)):
        found = [Path(name) for name in glob.glob(os.path.expanduser(pattern), recursive=True)]
        files = [path for path in found if path.is_file()]
        if not files:
            what = (
                "is a folder; give a glob of its files, such as" if found else "matches no file; check it, for example"
            )
            example = f"'{pattern.rstrip('/')}/*.txt'" if found else f"ls {pattern}"
            raise UserError(f"corpus '{pattern}' {what} {example}")
        paths.update(files)
    if not paths:
        raise UserError("no corpus given; name text files, for example --input='corpus/*.txt'")
    return sorted(paths)


def read_documents(
    patterns: str | Iterable[str], text_field: str = "text", split_sentences: bool = False
) -> Iterator[list[str]]:
    """Streams every document as a list of its sentences (str, stripped, none empty; the list may be empty).

    Raises UserError for a missing or unreadable file and for a line that is not JSON of the form promised.
    """
    for chunk in read_chunks(find_files(patterns)):
        yield from parse_documents(chunk, text_field, split_sentences)


def read_chunks(paths: Iterable[Path], chunk_bytes: int = 8 << 20) -> Iterator[Chunk]:
    """Cuts each file into chunks of whole documents of about `chunk_bytes` of text.

    The cuts depend on the bytes alone. A last chunk under a quarter of the size joins the one before. A plain-text
    document longer than a chunk is cut at a line end: the memory stays bounded by the size and the longest line.
    """
    first_document = 0
    for path in paths:
        for chunk in _file_chunks(path, first_document, chunk_bytes):
            first_document += chunk.num_documents
            yield chunk
            del chunk


def parse_documents(chunk: Chunk, text_field: str = "text", split_sentences: bool = False) -> Iterator[list[str]]:
    """The chunk's documents as lists of sentences. Bytes that are not UTF-8 become U+FFFD."""
    texts = _json_texts(chunk, text_field) if is_json(chunk.path) else _plain_texts(chunk.data)
    return (_sentences(text, split_sentences) for text in texts)


def is_json(path: str | os.PathLike) -> bool:
    return str(path).removesuffix(".gz").endswith((".jsonl", ".json"))


def _sentences(text: str, split: bool) -> list[str]:
    lines = (line.strip() for line in text.split("\n"))
    if not split:
        return [line for line in lines if line]
    return [sentence for line in lines if line for sentence in split_paragraph(line)]


def _plain_texts(data: bytes) -> list[str]:
    documents, lines = [], []
    for line in data.decode("utf-8", "replace").split("\n"):
        if line.strip():
            lines.append(line)
        elif lines:
            documents.append("\n".join(lines))
            lines = []
    return documents + ["\n".join(lines)] if lines else documents


def _json_texts(chunk: Chunk, text_field: str) -> Iterator[str]:
    for number, line in enumerate(chunk.data.split(b"\n"), chunk.first_line):
        if not line.strip():
            continue
        where = f"'{chunk.path}' line {number}"
        try:
            row = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where} is not JSON ({error}); give JSON lines, one object a line") from error
        if not isinstance(row, dict) or not isinstance(row.get(text_field), str):
            fields = ", ".join(map(repr, row)) if isinstance(row, dict) else f"a {type(row).__name__}"
            raise UserError(f"{where} has no text under {text_field!r} (it has {fields}); set --text_field")
        # Lone surrogates are legal in JSON escapes and nowhere else.
        text = row[text_field].encode("utf-8", "replace").decode("utf-8")
        yield text.replace("\r\n", "\n").replace("\r", "\n")


def _file_chunks(path: Path, first_document: int, chunk_bytes: int) -> Iterator[Chunk]:
    first_line, on_disk = 1, 0
    for data, position in _cut(path, chunk_bytes):
        count = _count_documents(data, is_json(path))
        lines = data.count(b"\n")
        yield Chunk(str(path), first_document, count, first_line, data, position - on_disk)
        first_document, first_line, on_disk = first_document + count, first_line + lines, position
        del data


def _cut(path: Path, chunk_bytes: int) -> Iterator[tuple[bytes, int]]:
    """Yields (bytes of whole documents, position in the file on disk)."""
    separator = b"\n" if is_json(path) else b"\n\n"
    waiting, position = bytearray(), 0
    for block, position in _read_blocks(path):
        waiting += block
        # A quarter more is read before cutting, so that no tiny chunk is left for the end.
        while len(waiting) >= chunk_bytes + chunk_bytes // 4:
            end = waiting.rfind(separator, 0, chunk_bytes)
            end = end if end >= 0 else waiting.rfind(b"\n", 0, chunk_bytes)
            end = end if end >= 0 else waiting.find(b"\n", chunk_bytes)
            if end < 0:
                break
            end += len(separator) if waiting[end : end + len(separator)] == separator else 1
            data = bytes(memoryview(waiting)[:end])
            del waiting[:end]
            yield data, position
            del data
    if waiting.strip():
        yield bytes(waiting), position


def _read_blocks(path: Path) -> Iterator[tuple[bytes, int]]:
    """Yields (block with every line end as \\n and blank lines truly empty, position on disk)."""
    try:
        with open(path, "rb") as raw:
            file = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            held = b""
            first = True
            while block := file.read(_READ_BYTES):
                block = held + (block.removeprefix(b"\xef\xbb\xbf") if first else block)
                first = False
                # A "\r" at the edge may be half of "\r\n"; spaces there may belong to a blank line.
                keep = len(block.rstrip(b" \t\r"))
                block, held = block[:keep], block[keep:]
                yield _clean_lines(block), raw.tell()
            if held:
                yield _clean_lines(held), raw.tell()
    except OSError as error:
        raise UserError(f"cannot read corpus file '{path}': {error.strerror or error}") from error
    except (EOFError, gzip.zlib.error) as error:
        raise UserError(f"corpus file '{path}' is damaged: {error}; copy it again") from error


def _clean_lines(block: bytes) -> bytes:
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b" \n" in block or b"\t\n" in block:
        block = b"\n".join(line.rstrip(b" \t") for line in block.split(b"\n"))
    return block


def _count_documents(data: bytes, json_lines: bool) -> int:
    if json_lines:
        return sum(1 for line in data.split(b"\n") if line.strip())
    return len(_plain_texts(data))

"""Detects kinds of text files by their names' endings, their first bytes and their encoding.

>>> [is_json_lines(name) for name in ("a.jsonl", "B.NDJSON", "c.jl.gz", "d.txt")]
[True, True, True, False]
"""

import codecs
import gzip
import json
import os
import re
import zlib

from charset_normalizer import from_bytes

from tfrecords.base.errors import UserError

# A JSON object a line.
JSON_LINES = (".jsonl", ".ndjson", ".jsonlines", ".jl", ".ldjson", ".json")
# Rows of cells, whatever program reads them.
TABLES = (".csv", ".tsv", ".tab", ".psv", ".parquet", ".feather", ".arrow", ".orc", ".xlsx", ".xls", ".ods")
# Bytes by which text is told from anything else, and the control characters that a damaged text may still have there.
HEAD_BYTES = 4096
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_MOST_CONTROL = 40
# How certain files begin that are no text. Of UTF-16 and UTF-32 it is the byte-order mark.
_MAGIC = {
    b"PK\x03\x04": "an archive (.zip, .xlsx, .keras, .docx ...)",
    b"\x89HDF": "an HDF5 file",
    b"\x1f\x8b": "gzip without the ending .gz",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"\xd0\xcf\x11\xe0": "an old Office document (.xls, .doc)",
    b"%PDF-": "a PDF",
    b"PAR1": "a Parquet file",
    codecs.BOM_UTF32_LE: "UTF-32 text (iconv -f utf-32 -t utf-8 converts that)",
    codecs.BOM_UTF32_BE: "UTF-32 text (iconv -f utf-32 -t utf-8 converts that)",
    codecs.BOM_UTF16_LE: "UTF-16 text (iconv -f utf-16 -t utf-8 converts that)",
    codecs.BOM_UTF16_BE: "UTF-16 text (iconv -f utf-16 -t utf-8 converts that)",
}
# Bytes that are not UTF-8, as `surrogateescape` decodes them, and how many of them a damaged text may still have.
NOT_UTF8 = re.compile("[\udc80-\udcff]")
_NOT_ASCII = re.compile("[^\0-\x7f]")
_MOST_NOT_UTF8 = 8
# Bytes or characters. A packed file of a megabyte may hold a line of a gigabyte.
LONGEST_LINE = 1 << 26
# Bytes of a text that are read to detect its encoding.
_SAMPLE_BYTES = 1 << 16

# Codecs by age of their letters. Of a tie the first one counts.
_OF_MANY_BYTES = ("gb18030", "big5", "cp932", "euc_jp", "cp949")
_WINDOWS = (*(f"cp{number}" for number in (1252, 1250, 1254, 1255, 1253, 1256, 1251)), "iso8859_2", "koi8_r")
_OLDER = ("mac_roman", "cp850")
# Bytes that are letters on DOS and the Mac, and on Windows seldom.
_OLDER_LETTER = re.compile(rb"[\x80-\x84\x86-\x90\x98\x9a-\x9f]")
_LATER_LETTER = re.compile(rb"[\xa0-\xff]")


def is_gzipped(path: str | os.PathLike) -> bool:
    """Whether a name ends in .gz."""
    return str(path).lower().endswith(".gz")


def ending(path: str | os.PathLike) -> str:
    """Returns a name's ending in lower case, without .gz.

    >>> ending("corpus/Part.1.JSONL.gz")
    '.jsonl'
    """
    return os.path.splitext(str(path).lower().removesuffix(".gz"))[1]


def is_json_lines(path: str | os.PathLike) -> bool:
    """Whether a name has one of the endings `JSON_LINES`."""
    return ending(path) in JSON_LINES


def refuse_table(path: str | os.PathLike) -> None:
    """Raises UserError for a name with a table's ending, such as .csv."""
    if ending(path) in TABLES:
        raise UserError(
            f"'{path}' is a table, its lines are no texts; make JSON lines of it (.jsonl), as pandas does by "
            "to_json(orient='records', lines=True, force_ascii=False)"
        )


def foreign_kind(head: bytes) -> str | None:
    """Returns the kind of a binary, UTF-16 or UTF-32 file from its first bytes, else None."""
    known = next((what for magic, what in _MAGIC.items() if head.startswith(magic)), None)
    # In texts of two bytes a character every other byte is NUL, where the text is English.
    is_binary = len(_CONTROL.findall(head)) > _MOST_CONTROL or 4 * head.count(0) > len(head)
    return known or ("a binary file, or UTF-16 text without a byte-order mark" if is_binary else None)


def kind_of(head: bytes) -> str | None:
    """Returns what a file is, such as "a PDF"; None for possible UTF-8 text."""
    return foreign_kind(head) or encoding_of(head)


def first_not_utf8(data: bytes) -> int:
    """Position of the first byte that is not UTF-8, or -1."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return -1


def count_not_utf8(data: bytes) -> int:
    """Number of bytes that are not UTF-8."""
    if first_not_utf8(data) < 0:
        return 0
    return len(NOT_UTF8.findall(data.decode("utf-8", "surrogateescape")))


def encoding_of(data: bytes, most: int = _MOST_NOT_UTF8) -> str | None:
    """Describes the likely encoding of a text; None for UTF-8, even if some bytes are damaged."""
    text = data.decode("utf-8", "surrogateescape")
    bad = len(NOT_UTF8.findall(text))
    # In UTF-8 most of what is not ASCII is well-formed, in any other encoding next to nothing.
    if bad <= most or 2 * bad <= len(_NOT_ASCII.findall(text)):
        return None
    # From the start of a line on, so that no character of several bytes is cut.
    start = data.rfind(b"\n", 0, first_not_utf8(data)) + 1
    codec = _likeliest(data[start : start + _SAMPLE_BYTES])
    return (
        f"text in another encoding (iconv -f {codec} -t utf-8 converts that)"
        if codec
        else "text in an unknown encoding"
    )


def holds_json_lines(head: bytes) -> bool:
    """Returns whether all lines are JSON objects; the last line may be cut off."""
    lines = [line for line in head.removeprefix(codecs.BOM_UTF8).splitlines() if line.strip()]
    if len(head) >= HEAD_BYTES:
        lines = lines[:-1]
    return bool(lines) and all(_is_object(line) for line in lines)


def check_text(path: str | os.PathLike, head: bytes, what: str = "") -> None:
    """Raises UserError for a file that is not UTF-8 text, or holds JSON lines under another ending.

    head: its first HEAD_BYTES, decompressed. what: precedes the path in the message.
    """
    if kind := kind_of(head):
        raise UserError(f"{what}'{path}' is {kind}, not UTF-8 text; give text or JSON lines, also .gz")
    if not is_json_lines(path) and holds_json_lines(head):
        raise UserError(
            f"{what}'{path}' holds JSON objects, and its name does not say so; give it one of the endings "
            f"{', '.join(JSON_LINES)}"
        )


def read_head(path: str | os.PathLike) -> bytes:
    """Reads the first HEAD_BYTES of a local file, decompressed. Raises OSError or EOFError."""
    with gzip.open(path) if is_gzipped(path) else open(path, "rb") as file:
        try:
            return file.read(HEAD_BYTES)
        except zlib.error as error:
            raise gzip.BadGzipFile(str(error)) from error


def _is_object(line: bytes) -> bool:
    try:
        return line.lstrip().startswith(b"{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _likeliest(data: bytes) -> str:
    lines = b"\n".join(line for line in data.split(b"\n") if not line.isascii())
    is_older = 5 * len(_OLDER_LETTER.findall(lines)) > 2 * len(_LATER_LETTER.findall(lines))
    order = [*(_OLDER if is_older else _WINDOWS), *_OF_MANY_BYTES]
    # The library's own choice among equally likely ones follows the alphabet, so that French would be Windows-1250.
    found = [
        (match.chaos, -match.coherence, order.index(codec), codec)
        for match in from_bytes(lines, cp_isolation=order, enable_fallback=False)
        for codec in match.could_be_from_charset
    ]
    codec = min(found)[-1] if found else ""
    return {"mac_roman": "macintosh"}.get(codec, codec.replace("_", "-"))

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
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_NOT_ASCII = re.compile("[^\0-\x7f]")
_MOST_NOT_UTF8 = 8
_PART_BYTES = 1 << 14
# Bytes or characters. A packed file of a megabyte may hold a line of a gigabyte.
LONGEST_LINE = 1 << 26
# Bytes of a text that are read to detect its encoding.
_SAMPLE_BYTES = 1 << 16

# What is common in texts of an encoding: the accented small letters, or the most frequent characters.
_WEST = set("àáâãäåæçèéêëìíîïñòóôõöøùúûüýßœ‘’“”«»–—€£°§©¿¡")  # noqa: RUF001
_EAST = set("ąćęłńóśźżčďěňřšťůúýžáéíőűăâîşţľöüäß„”–")  # noqa: RUF001
_TURKISH = _WEST - set("ýðþ") | set("ığş")
_RUSSIAN = set("оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфіїє")
_GREEK = set("αοιετσνηυρπκμλςδγωχθφβξζψάέήίόύώ")
_HEBREW, _ARABIC = set("אבגדהוזחטיכלמנסעפצקרשתםןףץך"), set("ابتثجحخدذرزسشصضطظعغفقكلمنهوىيةءأإآؤئ")
_CHINESE = set(
    "的一是不了在人有我他这個们來中来上大为和国國地到以说時要就出会會可也你对對生能而子那得于着下自之年过過\uff0c。"
)
_JAPANESE = set("のにはをたがでてとしれさるいもなかられりこのそくすあっんうまきだよ、。")
_KOREAN = set("이다는을의에가고하한지로기사도를은들리어아서자나인대그있해라")
# Codecs, which iconv knows by the same names, with what they are called. Of a tie the first one counts.
_MANY_BYTES = {
    "gb18030": ("GB18030", _CHINESE),
    "big5": ("Big5", _CHINESE),
    "cp932": ("Shift JIS", _JAPANESE),
    "euc-jp": ("EUC-JP", _JAPANESE),
    "cp949": ("EUC-KR", _KOREAN),
}
_ACCENTS = {
    "cp1252": ("Latin-1 or Windows-1252", _WEST | {"…"}),
    "cp1250": ("Windows-1250", _EAST),
    "iso8859-2": ("ISO 8859-2", _EAST),
    "cp1254": ("Windows-1254", _TURKISH),
    "cp850": ("the DOS code page 850", _WEST),
    "macintosh": ("Mac OS Roman", _WEST),
}
_ALPHABETS = {
    "cp1255": ("Windows-1255", _HEBREW),
    "cp1253": ("Windows-1253", _GREEK),
    "cp1256": ("Windows-1256", _ARABIC),
    "cp1251": ("Windows-1251", _RUSSIAN),
    "koi8-r": ("KOI8-R", _RUSSIAN),
    "cp866": ("the DOS code page 866", _RUSSIAN),
}
_WIDE = {f"utf-{bits}{order}": f"UTF-{bits}" for bits in (32, 16) for order in ("le", "be")}
# The commonest characters of languages with thousands of them are a tenth of a text at least, those of others half.
_FEW, _HALF = 0.1, 0.5


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
    is_odd = encoding_of(head) or _has_controls(head) or 4 * head.count(0) > len(head)
    return known or (_wide_kind(head) if is_odd else None)


def kind_of(head: bytes) -> str | None:
    """Returns what a file is, such as "a PDF"; None for possible UTF-8 text."""
    return foreign_kind(head) or ("a binary file" if _has_controls(head) else encoding_of(head))


def _has_controls(head: bytes) -> bool:
    return len(_CONTROL.findall(head)) > _MOST_CONTROL


def first_not_utf8(data: bytes) -> int:
    """Position of the first byte that is not UTF-8, or -1."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start
    return -1


def count_not_utf8(data: bytes) -> int:
    """Number of bytes that are not UTF-8."""
    count = start = 0
    while start < len(data):
        # A few lines at a time, since copying all at once takes longer.
        end = data.find(b"\n", start + _PART_BYTES) + 1 or len(data)
        part = data[start:end]
        if not part.isascii() and first_not_utf8(part) >= 0:
            count += len(_NOT_UTF8.findall(part.decode("utf-8", "surrogateescape")))
        start = end
    return count


def encoding_of(data: bytes, most: int = _MOST_NOT_UTF8) -> str | None:
    """Describes the likely encoding of a text; None for UTF-8, even if some bytes are damaged."""
    text = data.decode("utf-8", "surrogateescape")
    bad = len(_NOT_UTF8.findall(text))
    # In UTF-8 most of what is not ASCII is well-formed, in any other encoding next to nothing.
    if bad <= most or 2 * bad <= len(_NOT_ASCII.findall(text)):
        return None
    # From the start of a line on, so that no character of several bytes is cut.
    start = data.rfind(b"\n", 0, first_not_utf8(data)) + 1
    codec, name = _likeliest(data[start : start + _SAMPLE_BYTES])
    if codec:
        return f"text in another encoding, such as {name} (iconv -f {codec} -t utf-8 converts that)"
    return "text in an unknown encoding"


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


def _likeliest(data: bytes) -> tuple[str, str]:
    shares = {}
    for codec, (_, common) in _MANY_BYTES.items():
        try:
            # The last character may be cut off.
            shares[codec] = _share(codecs.getincrementaldecoder(codec)().decode(data), common)
        except UnicodeDecodeError:
            continue
    table, least = _MANY_BYTES, _FEW
    if max(shares.values(), default=0) < _FEW:
        # Accents are letters among others, an alphabet's letters come one after another.
        runs = re.findall(rb"[\x80-\xff]+", data)
        table, least = (_ALPHABETS if sum(map(len, runs)) > 2 * len(runs) else _ACCENTS), _HALF
        shares = {codec: _share(_decoded(b"".join(runs), codec), common) for codec, (_, common) in table.items()}
    codec = max(shares, key=shares.__getitem__)
    return (codec, table[codec][0]) if shares[codec] >= least else ("", "")


def _wide_kind(head: bytes) -> str | None:
    for codec, name in _WIDE.items():
        text = _decoded(head, codec)
        ascii_share = len(re.findall("[ -~]", text)) / max(len(text), 1)
        if ascii_share > _HALF or any(
            _share(text, common) > _FEW for common in (_RUSSIAN, _CHINESE, _JAPANESE, _KOREAN)
        ):
            return f"{name} text without a byte-order mark (iconv -f {codec} -t utf-8 converts that)"
    return None


def _decoded(data: bytes, codec: str) -> str:
    # What iconv calls macintosh, Python calls mac_roman.
    return data.decode("mac_roman" if codec == "macintosh" else codec, "replace")


def _share(text: str, common: set[str]) -> float:
    characters = _NOT_ASCII.findall(text)
    found = sum(1 if one in common else 0.6 * (one.lower() in common) for one in characters)
    return found / max(len(characters), 1)

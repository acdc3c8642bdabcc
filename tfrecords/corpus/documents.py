"""Reads files of plain text or JSON lines, also gzipped, as documents: lists of sentences.

A blank line or the end of a file ends a plain-text document; each JSON line is a document. A line of text is a
sentence. With `split_sentences` it is a paragraph to split; with `line_documents`, a document. Samples of a corpus are
read before it is read as a whole.
"""

import collections
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from absl import logging

from tfrecords.base.errors import UserError
from tfrecords.base.files import patterns_of
from tfrecords.base.text_files import is_json_lines, refuse_table
from tfrecords.corpus import sections
from tfrecords.corpus.sections import Chunk, Section, is_remote

_BLANK_LINES = re.compile(r"\n\s*\n")


def find_files(patterns: str | Iterable[str]) -> list[Path | str]:
    """Returns the sorted files of comma-separated globs, URLs as str; raises UserError for a .csv or no match."""
    names: set[str] = set()
    for pattern in patterns_of(patterns):
        found = sections.find(pattern)
        if not found:
            raise UserError(f"corpus '{pattern}' matches no file; give files or globs of them, such as 'corpus/*.txt'")
        names.update(found)
    if not names:
        raise UserError("no corpus given; name text files, for example --input='corpus/*.txt'")
    for name in sorted(names):
        refuse_table(name)
    return [name if is_remote(name) else Path(name) for name in sorted(names)]


def read_documents(
    patterns: str | Iterable[str], text_field: str = "text", split_sentences: bool = False
) -> Iterator[list[str]]:
    """Yields every document as a list of its sentences; the list may be empty.

    Bytes that are not UTF-8 become U+FFFD, with a warning. Raises UserError for an unreadable file or a bad JSON line.
    """
    for path in find_files(patterns):
        not_utf8 = 0
        for chunk in sections.read_chunks(Section(str(path))):
            not_utf8 += chunk.not_utf8
            for text in read_texts(chunk, text_field):
                yield sentences_of(text.decode(), split_sentences)
        if not_utf8:
            logging.warning("%s", describe_not_utf8(str(path), not_utf8))


def describe_not_utf8(path: str, count: int) -> str:
    """Returns a warning about `count` bytes that are not UTF-8."""
    return f"corpus file '{path}': {count:,} bytes are not UTF-8, each became U+FFFD; convert or repair the file"


def read_texts(chunk: Chunk, text_field: str, line_documents: bool = False) -> Iterator[bytes]:
    """Yields documents' texts in UTF-8, lines separated by "\\n"; raises UserError for a bad JSON line."""
    for text in _read_texts(chunk, text_field):
        yield from (line for line in text.split(b"\n") if line.decode().strip()) if line_documents else (text,)


def _read_texts(chunk: Chunk, text_field: str) -> Iterator[bytes]:
    if not is_json_lines(chunk.path):
        texts = _BLANK_LINES.split(chunk.data.decode("utf-8", "replace"))
        yield from (text.encode() for text in texts if text and not text.isspace())
        return
    for number, line in enumerate(chunk.data.split(b"\n")):
        if line.strip():
            try:
                yield _text_of(line, text_field)
            except ValueError as error:
                place = f"'{chunk.path}' line {sections.line_number(chunk, number)}"
                raise UserError(f"{place} {error}; give JSON lines, one object a line") from error


def sentences_of(text: str, split: bool) -> list[str]:
    """Returns a document's lines, or, if `split`, their sentences; stripped, without empty ones."""
    lines = (line.strip() for line in text.split("\n"))
    if not split:
        return [line for line in lines if line]
    return [sentence for line in lines if line for sentence in split_paragraph(line)]


def _text_of(line: bytes, text_field: str) -> bytes:
    try:
        row = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON ({error})") from error
    found = row.get(text_field) if isinstance(row, dict) else None
    if not isinstance(found, str):
        there = line[:60].decode("utf-8", "replace")
        raise ValueError(f"has no text under {text_field!r} ({there}); set --text_field, or fix or remove the line")
    # Lone surrogates are legal in JSON escapes and nowhere else.
    text = found.encode("utf-8", "replace")
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in text else text


# What a full stop after it does not end: titles, Latin and business abbreviations, months, single initials.
_ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr prof rev hon st sr jr gen col capt lt sgt gov sen rep pres vs etc al cf eg ie e.g i.e viz ca approx
    inc ltd co corp bros dept est fig figs eq eqs vol vols no nos pp ed eds op ch sec jan feb mar apr jun jul aug
    sep sept oct nov dec mt ft u.s u.k u.n d.c b.c a.d a.m p.m ph.d m.d b.a m.a
    """.split()  # noqa: SIM905
)
# End marks with closing quotes or brackets. Latin ones need white space and a fresh start behind; Chinese ones do not.
# Possessive, and begun only where a run of marks begins: a line of dots must not take quadratic time. One set of
# characters stands first, and all conditions behind it, so that `re` skips to the marks (23 to 197 MB/s).
_SENTENCE_END = re.compile(
    r"""[.!?…。！？](?:"""  # noqa: RUF001
    r"""(?<=[.!?])(?<![.!?]{2})[.!?]*+["'”’)\]]*+(?=\s++["'“‘(\[]*+[^\W_a-z])"""  # noqa: RUF001
    r"""|(?<=[…。！？])(?<![…。！？]{2})(?:(?<!…)[…。！？]*+|…*+[。！？][…。！？]*+|…++)[”’」』）》]*+)"""  # noqa: RUF001
)
_LAST_WORD = re.compile(r"[\w.]+$")
_LONGEST = 12


def split_paragraph(paragraph: str) -> list[str]:
    """Cuts a paragraph into sentences."""
    sentences, start = [], 0
    for match in _SENTENCE_END.finditer(paragraph):
        mark = match.start()
        if paragraph[mark] == "." and _is_abbreviation(paragraph[max(start, mark - _LONGEST) : mark]):
            continue
        sentences.append(paragraph[start : match.end()].strip())
        start = match.end()
    sentences.append(paragraph[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _is_abbreviation(before: str) -> bool:
    match = _LAST_WORD.search(before)
    if not match:
        return False
    word = match.group()
    return word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper() and word != "I")


# Number of evenly spaced samples of the corpus, and about how many bytes of text each has.
_PLACES, _BYTES = 16, 1 << 16
# A line that begins with a tag, or with MediaWiki's templates, links of a namespace and headings.
_TAG = re.compile(r"\s*</?([A-Za-z][\w:.-]*)(?:\s[^<>]*)?/?>")
_WIKI = re.compile(r"\s*(?:(\{\{)[^{}|]+(?:\||$)|(\[\[)\w+:|(==+)[^=]+==+\s*$)")
# Share of the lines that may be such ones.
_MOST_MARKUP = 0.03


def sample_texts(paths: Sequence[str | os.PathLike], text_field: str = "text") -> Iterator[list[str]]:
    """Yields the texts at some places of a corpus, which are spread over all of it."""
    total = sum(map(sections.text_bytes, paths))
    for piece in sections.plan_pieces(paths, max(total // _PLACES, _BYTES)):
        for chunk in itertools.islice(sections.read_chunks(piece[0], _BYTES), 1):
            yield [text.decode() for text in read_texts(chunk, text_field)]


def warn_of_markup(paths: Sequence[str | os.PathLike], text_field: str = "text") -> None:
    """Warns on stderr if more than 3 % of a sample's lines are markup: tags that are closed somewhere, or wiki text."""
    lines = [line for texts in sample_texts(paths, text_field) for text in texts for line in text.splitlines()]
    opened, closed, others = collections.Counter[str](), set[str](), collections.Counter[str]()
    for line in lines:
        if tag := _TAG.match(line):
            opened[tag[1]] += 1
        elif wiki := _WIKI.match(line):
            others[next(filter(None, wiki.groups()))] += 1
        closed |= set(re.findall(r"</([A-Za-z][\w:.-]*)>", line))
    found = others + collections.Counter({f"<{name}>": count for name, count in opened.items() if name in closed})
    if found.total() > _MOST_MARKUP * len(lines):
        names = ", ".join(name for name, _ in found.most_common(5))
        print(
            f"warning: {found.total() / len(lines):.0%} of the lines are markup ({names}), which becomes words of the "
            "vocabulary and of the examples; give the text alone",
            file=sys.stderr,
        )

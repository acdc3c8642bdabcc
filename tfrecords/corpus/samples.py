"""Looks at parts of a corpus before it is read as a whole."""

import collections
import itertools
import os
import re
import sys
from collections.abc import Iterator, Sequence

from tfrecords.corpus import sections
from tfrecords.corpus.documents import read_texts

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

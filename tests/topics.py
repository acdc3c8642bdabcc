"""Writes the prose that every CPython carries, its help topics, as a corpus: a document a topic, a paragraph a line."""

import re
import sys
from pathlib import Path
from pydoc_data.topics import topics

from tfrecords.base.files import replacing


def paragraphs(text):
    """Unwraps hard-wrapped paragraphs; drops the underlines of headings."""
    without_rules = re.sub(r"(?m)^[ \t]*([*=\-~^\"])\1{2,}[ \t]*$", "", text)
    return [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", without_rules) if paragraph.strip()]


def write_topics(path):
    with replacing(path) as temporary:
        temporary.write_text(
            "\n\n".join("\n".join(paragraphs(topics[name])) for name in sorted(topics)) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    write_topics(Path(sys.argv[1]))

"""Cuts a corpus that is one long document into short ones, so that some can be held out: INPUT OUTPUT."""

import sys
from itertools import chain, islice
from pathlib import Path

from tfrecords.corpus import read_documents
from tfrecords.files import replacing

SENTENCES = 25


def is_one_document(pattern: str) -> bool:
    return len(list(islice(read_documents(pattern), 2))) == 1


def cut(pattern: str, output: Path) -> None:
    sentences = chain.from_iterable(read_documents(pattern, split_sentences=True))
    with replacing(output) as temporary, open(temporary, "w", encoding="utf-8") as file:
        while part := list(islice(sentences, SENTENCES)):
            file.write("\n".join(part) + "\n\n")


if __name__ == "__main__":
    cut(sys.argv[1], Path(sys.argv[2]))

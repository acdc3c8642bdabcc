"""Cuts a corpus of few long documents into short ones, so that some can be held out: INPUT OUTPUT."""

import sys
from itertools import islice
from pathlib import Path

from tfrecords.base.files import replacing
from tfrecords.corpus import read_documents

FEW = 10
SENTENCES = 25


def has_few_documents(pattern: str) -> bool:
    return len(list(islice(read_documents(pattern), FEW))) < FEW


def cut(pattern: str, output: Path) -> None:
    with replacing(output) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for document in read_documents(pattern, split_sentences=True):
            for start in range(0, len(document), SENTENCES):
                file.write("\n".join(document[start : start + SENTENCES]) + "\n\n")


if __name__ == "__main__":
    cut(sys.argv[1], Path(sys.argv[2]))

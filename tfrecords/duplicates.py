"""Finds equal documents, to keep them in one split, and counts held-out documents with near-equals in training.

Documents with equal sentences, apart from white space and Unicode composition, are in the same split.
"""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tfrecords.deal import hash_texts, read_keys

_ACCENTS = re.compile("[\u0300-\u036f]")
_BYTE_ORDER_MARK = "\ufeff"


def split_hashes(texts: list[bytes]) -> np.ndarray:
    """Returns a hash of each document that decides its split, int64 [documents]; texts have one sentence per line."""
    return hash_texts(_without_spacing(text.decode()).encode() for text in texts)


def loose_hashes(texts: list[bytes]) -> np.ndarray:
    """Returns a hash of each document that ignores case, accents and white space, int64 [documents]."""
    return hash_texts(_letters(text.decode()).encode() for text in texts)


def count_also_in_training(spills: Iterable[Path]) -> int:
    """Counts held-out documents that are also in training, by the `loose_hashes` in spill files."""
    paths = list(spills)
    held_out = [read_keys(path)[0] for path in paths]
    keys, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *held_out]), return_counts=True)
    found = np.zeros(len(keys), bool)
    for path in paths if len(keys) else ():
        _, training = read_keys(path)
        places = np.minimum(np.searchsorted(keys, training), len(keys) - 1)
        found[places[keys[places] == training]] = True
    return int(counts[found].sum())


def _without_spacing(text: str) -> str:
    if not text.isascii():
        # Files with such a mark that were joined have it in their middle.
        text = unicodedata.normalize("NFC", text.replace(_BYTE_ORDER_MARK, ""))
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(filter(None, lines))


def _letters(text: str) -> str:
    if not text.isascii():
        text = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.replace(_BYTE_ORDER_MARK, "").casefold()))
    return "".join(text.lower().split())

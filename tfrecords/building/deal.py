"""Assigns documents to shards by a hash of their content, so that every shard is a fair sample of the corpus.

A document's shard and split depend only on its text and the seed. Documents with equal sentences, apart from white
space and Unicode composition, are in the same split.

A first pass writes spill files: a header int64 [2, shards + 1] (each shard's start in bytes and in documents), then for
each shard the columns hash and length (int64) and the texts (UTF-8).
"""

import hashlib
import itertools
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfrecords.building.settings import BuildSettings
from tfrecords.examples.randomness import derive

# Purposes of keys that belong to no single pass over a document.
_HELD_OUT, _DEAL = -1, -3
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class Deal:
    """Decides the shard of each document.

    train, eval: number of shards of each split; shards of `eval` come last. held_out_fraction: documents are held
    out with this chance.
    """

    seed: int
    train: int
    eval: int
    held_out_fraction: float

    @classmethod
    def of(cls, settings: BuildSettings, text_bytes: int) -> "Deal":
        """Plans as many shards as the text fills, at least one for each split in use."""
        fraction = settings.held_out_fraction
        held_out = text_bytes * fraction
        train, eval = (max(1, round(size / settings.chunk_bytes)) for size in (text_bytes - held_out, held_out))
        return cls(settings.seed, train, eval if fraction else 0, fraction)

    @property
    def shards(self) -> int:
        return self.train + self.eval

    def shard_of(self, hashes: np.ndarray, split_hashes: np.ndarray | None = None) -> np.ndarray:
        """Returns each document's shard, int64 [documents].

        Equal documents in a batch may get different shards. split_hashes: choose the split; default `hashes`.
        """
        bits = derive(self.seed, _HELD_OUT, hashes if split_hashes is None else split_hashes)
        held_out = (bits >> np.uint64(11)) / (1 << 53) < self.held_out_fraction
        bits = derive(self.seed, _DEAL, hashes, occurrences(hashes)) >> np.uint64(32)
        counts = np.where(held_out, self.eval, self.train).astype(np.uint64)
        return ((bits * counts) >> np.uint64(32)).astype(np.int64) + np.where(held_out, self.train, 0)


@dataclass(frozen=True)
class Documents:
    """Texts in UTF-8, and their hashes, int64 [documents]."""

    hashes: np.ndarray
    texts: list[bytes]


def hash_texts(texts: Iterable[bytes]) -> np.ndarray:
    """64-bit BLAKE2b hash of each text, int64 [documents]."""
    digests = (hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(digests), np.dtype("<i8")).astype(np.int64)


def split_hashes(texts: list[bytes]) -> np.ndarray:
    """Returns a hash of each document that decides its split, int64 [documents]; texts have one sentence per line."""
    return hash_texts(_without_spacing(text.decode()).encode() for text in texts)


def _without_spacing(text: str) -> str:
    if not text.isascii():
        # Files with such a mark that were joined have it in their middle.
        text = unicodedata.normalize("NFC", text.replace(_BYTE_ORDER_MARK, ""))
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(filter(None, lines))


def occurrences(hashes: np.ndarray) -> np.ndarray:
    """Counts the earlier equal entries of each hash: int64 [documents]."""
    order = np.argsort(hashes, kind="stable")
    ranks = np.empty(len(hashes), np.int64)
    ranks[order] = np.arange(len(hashes))
    return ranks - np.searchsorted(hashes[order], hashes)


def write_spill(path: Path, documents: Documents, shards: np.ndarray, number_of_shards: int) -> None:
    """Writes a spill file of documents, sorted by `shards`, int64 [documents]."""
    order = np.argsort(shards, kind="stable")
    lengths = np.array([len(documents.texts[i]) for i in order], np.int64)
    splits = np.searchsorted(shards[order], np.arange(number_of_shards + 1))
    text_splits = np.concatenate([[0], np.cumsum(lengths)])[splits]
    header = np.stack([16 * (number_of_shards + 1) + 16 * splits + text_splits, splits]).astype(np.int64)
    columns = np.stack([documents.hashes[order], lengths])
    with open(path, "wb") as file:
        file.write(header.tobytes())
        for begin, end in itertools.pairwise(splits.tolist()):
            file.write(columns[:, begin:end].tobytes())
            file.write(b"".join([documents.texts[i] for i in order[begin:end]]))


def read_shard(paths: Iterable[Path], shard: int) -> Documents:
    """Reads a shard's documents from spill files, in the order of `paths`."""
    hashes, texts = [np.zeros(0, np.int64)], []
    for path in paths:
        with open(path, "rb") as file:
            width = int(np.fromfile(file, np.int64, 1)[0]) // 16
            file.seek(8 * shard)
            begin, end = np.fromfile(file, np.int64, 2)
            file.seek(8 * (width + shard))
            first, last = np.fromfile(file, np.int64, 2)
            file.seek(begin)
            of_file, lengths = np.fromfile(file, np.int64, 2 * (last - first)).reshape(2, -1)
            hashes.append(of_file)
            data, splits = file.read(end - file.tell()), [0, *np.cumsum(lengths).tolist()]
            texts += [data[one:next_one] for one, next_one in itertools.pairwise(splits)]
    return Documents(np.concatenate(hashes), texts)


def batches(texts: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Yields lists of consecutive texts, each list of about `size` bytes."""
    batch, filled = [], 0
    for text in texts:
        batch.append(text)
        # Short documents: the list itself takes memory too.
        filled += len(text) + 64
        if filled >= size:
            yield batch
            batch, filled = [], 0
    if batch:
        yield batch

"""Assigns documents to shards by a hash of their content, so that every shard is a fair sample of the corpus.

A first pass writes documents to spill files, grouped by shard; a second pass reads each shard's documents. Shard and
split of a document depend only on the seed and its text.

A spill file has a header int64 [2, groups + 1] (each group's start in bytes and in documents), then for each group the
columns hash, shard and length (int64) and the texts (UTF-8). With more than `FAN_OUT` shards, a group is several
shards, which a second round of files separates. First-round files end with int64 keys to find duplicates: the number
held out, their keys, the other keys.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tfrecords.build_settings import BuildSettings
from tfrecords.randomness import derive

FAN_OUT = 256
# Purposes of keys that belong to no single pass over a document.
_HELD_OUT, _DEAL = -1, -3


@dataclass(frozen=True)
class Deal:
    """Decides the shard of each document.

    train, eval: number of shards of each split; those of `eval` come last. threshold: documents with a `chance` below
    it are held out. needed: the shards to write; None for all.
    """

    seed: int
    train: int
    eval: int
    threshold: float
    needed: tuple[int, ...] | None = None

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

    @property
    def group_size(self) -> int:
        return -(-self.shards // FAN_OUT)

    @property
    def groups(self) -> int:
        return -(-self.shards // self.group_size)

    def chance(self, hashes: np.ndarray) -> np.ndarray:
        """Converts hashes that decide the split to uniform numbers in [0, 1), float64 [documents]."""
        return (derive(self.seed, _HELD_OUT, hashes) >> np.uint64(11)) / (1 << 53)

    def shard_of(self, hashes: np.ndarray, split_hashes: np.ndarray | None = None) -> np.ndarray:
        """Returns each document's shard, int64 [documents]; -1 for shards not needed.

        Equal documents of a batch are assigned independently. split_hashes: decide the split instead of `hashes`.
        """
        held_out = self.chance(hashes if split_hashes is None else split_hashes) < self.threshold
        bits = derive(self.seed, _DEAL, hashes, occurrences(hashes)) >> np.uint64(32)
        counts = np.where(held_out, self.eval, self.train).astype(np.uint64)
        shards = ((bits * counts) >> np.uint64(32)).astype(np.int64) + np.where(held_out, self.train, 0)
        return shards if self.needed is None else np.where(np.isin(shards, self.needed), shards, -1)


@dataclass(frozen=True)
class Documents:
    """Documents with hashes and shards, int64 [documents], and UTF-8 texts."""

    hashes: np.ndarray
    shards: np.ndarray
    texts: list[bytes]


def hash_texts(texts: Iterable[bytes]) -> np.ndarray:
    """64-bit BLAKE2b hash of each text, int64 [documents]."""
    digests = (hashlib.blake2b(text, digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(digests), np.dtype("<i8")).astype(np.int64)


def occurrences(hashes: np.ndarray) -> np.ndarray:
    """Counts, for each hash, the earlier entries that are equal: int64 [documents]."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    begins = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, bool)
    places = np.arange(len(hashes))
    counts = np.empty(len(hashes), np.int64)
    counts[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return counts


def write_spill(path: Path, groups: np.ndarray, documents: Documents, number_of_groups: int) -> None:
    """Writes documents to a spill file, sorted by `groups`, int64 [documents]; leaves out negative groups."""
    order = np.argsort(groups, kind="stable")
    order = order[np.searchsorted(groups[order], 0) :]
    lengths = np.array([len(documents.texts[i]) for i in order], np.int64)
    splits = np.searchsorted(groups[order], np.arange(number_of_groups + 1))
    text_splits = np.concatenate([[0], np.cumsum(lengths)])[splits]
    header = np.stack([16 * (number_of_groups + 1) + 24 * splits + text_splits, splits]).astype(np.int64)
    columns = np.stack([documents.hashes[order], documents.shards[order], lengths])
    with open(path, "wb") as file:
        file.write(header.tobytes())
        for begin, end in itertools.pairwise(splits.tolist()):
            file.write(columns[:, begin:end].tobytes())
            file.write(b"".join([documents.texts[i] for i in order[begin:end]]))


def append_keys(path: Path, held_out: np.ndarray, training: np.ndarray) -> None:
    """Appends keys of held-out and of training documents to a spill file."""
    with open(path, "ab") as file:
        file.write(np.concatenate([[len(held_out)], held_out, training]).astype(np.int64).tobytes())


def read_keys(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Reads the documents' keys (held-out, training) that `append_keys` wrote."""
    with open(path, "rb") as file:
        width = int(np.fromfile(file, np.int64, 1)[0]) // 16
        file.seek(8 * (width - 1))
        file.seek(int(np.fromfile(file, np.int64, 1)[0]))
        count, *_ = np.fromfile(file, np.int64, 1)
        keys = np.fromfile(file, np.int64)
    return keys[:count], keys[count:]


def read_spill(path: Path, group: int, hashes_only: bool = False) -> Documents:
    """Reads one group's documents from a spill file, without texts if `hashes_only`."""
    with open(path, "rb") as file:
        width = int(np.fromfile(file, np.int64, 1)[0]) // 16
        file.seek(8 * group)
        begin, end = np.fromfile(file, np.int64, 2)
        file.seek(8 * (width + group))
        first, last = np.fromfile(file, np.int64, 2)
        file.seek(begin)
        hashes, shards, lengths = np.fromfile(file, np.int64, 3 * (last - first)).reshape(3, -1)
        data = b"" if hashes_only else file.read(end - file.tell())
    if hashes_only:
        return Documents(hashes, shards, [])
    ends = np.cumsum(lengths).tolist()
    return Documents(hashes, shards, [data[a:b] for a, b in zip([0, *ends[:-1]], ends)])


def read_shard(paths: Iterable[Path], group: int, shard: int, hashes_only: bool = False) -> Documents:
    """Reads a shard's documents from spill files, in the order of `paths`."""
    hashes, texts = [np.zeros(0, np.int64)], []
    for path in paths:
        documents = read_spill(path, group, hashes_only)
        mine = documents.shards == shard
        hashes.append(documents.hashes[mine])
        texts += [text for text, wanted in zip(documents.texts, mine) if wanted]
    found = np.concatenate(hashes)
    return Documents(found, np.full(len(found), shard), texts)


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

"""Training rows on disk: of a row only its place and its label are held in memory."""

import contextlib
import dataclasses
import itertools
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import numpy as np

from albert_tf.tasks.rows import Rows
from tfrecords.base.errors import UserError

_BYTES = np.dtype(np.int32).itemsize
_BLOCK = 2**20


class StoredArrays(Sequence):
    """Arrays int32 [..., length], one after the other in a file; each is read when it is asked for.

    Args:
        file: without a name, so that it is gone with this object, or with a killed process.
        places: sums of the lengths before each array, and of all: int64 [arrays + 1].
        lead: dimensions of each array before its length.
    """

    def __init__(self, file: BinaryIO, places: np.ndarray, lead: tuple[int, ...]):
        self._file, self._places, self._lead = file, places, lead

    def __len__(self) -> int:
        return len(self._places) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        start, end = self._places[index : index + 2].tolist()
        return self._read(start, end).reshape(*self._lead, -1)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self._places)

    def blocks(self) -> Iterator[np.ndarray]:
        """All numbers in order, a few million at a time: int32 [numbers]."""
        total = int(self._places[-1])
        return (self._read(start, min(start + _BLOCK, total)) for start in range(0, total, _BLOCK))

    def _read(self, start: int, end: int) -> np.ndarray:
        # Not mapped: the pages of a mapped file count as this process's memory until another needs them.
        item = _BYTES * math.prod(self._lead)
        return np.frombuffer(os.pread(self._file.fileno(), item * (end - start), item * start), np.int32)


@dataclasses.dataclass(frozen=True)
class StoredRows(Rows):
    """Rows whose tokens are StoredArrays."""

    tokens: dict[str, StoredArrays]

    @property
    def lengths(self) -> np.ndarray:
        return self.tokens["input_ids"].lengths


def store(chunks: Iterable[Rows]) -> StoredRows:
    """The rows of all chunks as one, with no more than one chunk in memory.

    What a kind of Rows has beyond tokens and values is not kept: training does not look at it.

    Raises:
        UserError: there are no rows, or there is no room for them among the temporary files.
    """
    chunk, files, lengths, values = None, {}, [], []
    for chunk in chunks:
        with _room():
            files = files or {name: tempfile.TemporaryFile(dir=_folder()) for name in chunk.tokens}  # noqa: SIM115
            for name, arrays in chunk.tokens.items():
                files[name].write(np.concatenate([np.ravel(array) for array in arrays]).astype(np.int32))
        lengths.append(chunk.lengths)
        values.append(chunk.values)
    if chunk is None:
        raise UserError("no example is left to train on; give a training file with at least one")
    with _room():
        for file in files.values():
            file.flush()
    places = np.cumsum(np.concatenate([[0], *lengths]))
    tokens = {name: StoredArrays(file, places, chunk.tokens[name][0].shape[:-1]) for name, file in files.items()}
    joined = {name: np.concatenate([part[name] for part in values]) for name in chunk.values}
    return StoredRows(tokens, joined, chunk.pad_id, chunk.target, chunk.weight)


def chunked(examples: Iterable, size: int) -> Iterator[list]:
    """The examples in lists of `size`, the last one perhaps shorter."""
    examples = iter(examples)
    return iter(lambda: list(itertools.islice(examples, size)), [])


def _folder() -> str:
    """$TMPDIR, or else /var/tmp where it is there: /tmp may be memory."""
    return "/var/tmp" if "TMPDIR" not in os.environ and os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()


@contextlib.contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot keep the training rows in '{_folder()}': {error.strerror}; set TMPDIR to a folder with room"
        ) from error

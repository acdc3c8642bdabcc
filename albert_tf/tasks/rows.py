"""Model inputs as rows of different lengths."""

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO

import numpy as np
import tensorflow as tf

from tfrecords.answers.texts import Truncation
from tfrecords.base.errors import UserError
from tfrecords.reading.framing import FramedRows, Framer, encode
from tfrecords.tokenizers.base import Tokenizer

_BLOCK = 2**20


class RaggedArray(Sequence):
    """Arrays [..., length] of different lengths, one after another in `values`.

    Array i has the columns from `splits[i]` to before `splits[i + 1]`; `lead` is its shape without the length.
    """

    def __init__(self, values: np.ndarray, splits: np.ndarray, lead: tuple[int, ...] = ()):
        self.values, self.splits, self.lead = values, splits, lead

    def __len__(self) -> int:
        return len(self.splits) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.read(self.splits[index], self.splits[index + 1]).reshape(*self.lead, -1)

    def read(self, start: int, end: int) -> np.ndarray:
        size = math.prod(self.lead)
        return self.values[size * start : size * end]

    def blocks(self) -> Iterator[np.ndarray]:
        total = int(self.splits[-1])
        return (self.read(start, min(start + _BLOCK, total)) for start in range(0, total, _BLOCK))


def side_by_side(columns: Sequence[RaggedArray], fill: int) -> RaggedArray:
    """Joins the arrays of each row to one [columns, length], padded by `fill` to the longest of them."""
    lengths = np.max([np.diff(column.splits) for column in columns], axis=0)
    splits, count = np.concatenate([[0], np.cumsum(lengths)]), len(columns)
    values = np.full(count * int(splits[-1]), fill, np.int32)
    for place, column in enumerate(columns):
        own = np.diff(column.splits)
        starts = count * splits[:-1] + place * lengths
        values[np.repeat(starts - column.splits[:-1], own) + np.arange(own.sum())] = column.values
    return RaggedArray(values, splits, (count,))


class StoredArray(RaggedArray):
    """A RaggedArray whose values are in a file."""

    def __init__(self, file: BinaryIO, splits: np.ndarray, lead: tuple[int, ...]):
        super().__init__(np.empty(0, np.int32), splits, lead)
        self._file = file

    def read(self, start: int, end: int) -> np.ndarray:
        # Not mapped: the pages of a mapped file count as this process's memory until another needs them.
        item = self.values.itemsize * math.prod(self.lead)
        return np.frombuffer(os.pread(self._file.fileno(), item * (end - start), item * start), self.values.dtype)


@dataclasses.dataclass(frozen=True)
class FeatureRows:
    """Rows of features; a row is one example, or a window of it.

    Attributes:
        tokens: for each feature, an array [length] or [choices, length] per row; always `input_ids`, `input_mask` and
            `segment_ids`.
        values: for each other feature, an array [rows, ...].
        target: the feature that `fit` gets as `y`; None if the loss reads labels from the features.
        weight: the feature that `fit` gets as sample weight.
        keys: int64 [rows, texts]; rows with a common key never share a training batch.
    """

    tokens: Mapping[str, RaggedArray]
    values: dict[str, np.ndarray]
    pad_id: int
    target: str | None = None
    weight: str | None = None
    truncation: Truncation = dataclasses.field(default_factory=Truncation)
    keys: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.tokens["input_ids"])

    @property
    def lengths(self) -> np.ndarray:
        return self.lengths_of("input_ids")

    def lengths_of(self, name: str) -> np.ndarray:
        return np.diff(self.tokens[name].splits)

    @property
    def sizes(self) -> np.ndarray:
        """The number of tokens of each row, padding between its texts included, int64 [rows]."""
        names = [name for name in self.tokens if name.endswith("input_ids")]
        return sum(math.prod(self.tokens[name].lead) * self.lengths_of(name) for name in names)

    def batch(self, indices: Sequence[int], length: int | Mapping[str, int]) -> tuple:
        """Returns (features,), (features, target) or (features, target, weight), padded to `length` columns."""
        columns = length if isinstance(length, Mapping) else dict.fromkeys(self.tokens, length)
        features = {name: self._padded(name, rows, indices, columns[name]) for name, rows in self.tokens.items()}
        features |= {name: values[indices] for name, values in self.values.items()}
        roles = [features.pop(name) for name in (self.target, self.weight) if name is not None]
        return (features, *roles)

    def _padded(self, name: str, rows: RaggedArray, indices: Sequence[int], length: int) -> np.ndarray:
        fill = self.pad_id if name.endswith("input_ids") else 0
        padded = np.full((len(indices), *rows.lead, length), fill, np.int32)
        for number, index in enumerate(indices):
            row = rows[index]
            padded[number, ..., : row.shape[-1]] = row
        return padded


def padded_length(length: int, limit: int, any_shape: bool = False) -> int:
    """Rounds a length up, at most to `limit`; `any_shape` allows more lengths."""
    # In batches of 32 rows of SST-2, MRPC, RTE and CoLA 22, 16, 10 and 26 % of the columns are padding, by multiples of
    # 2 it is 7, 2, 3 and 7 %, in up to 40 shapes.
    step = 2 if any_shape else 8 if length <= 64 else 32 if length <= 256 else 64
    return max(length, min(limit, -(-length // step) * step))


def on_host(make: Callable) -> Callable:
    """Decorates a function: TensorFlow runs it on the CPU."""

    @functools.wraps(make)
    def call(*arguments, **options):
        with tf.device("CPU:0"):
            return make(*arguments, **options)

    return call


def features_of(rows: FramedRows, **others: np.ndarray) -> dict[str, RaggedArray]:
    """Converts FramedRows to the `tokens` of FeatureRows."""
    ids = rows.input_ids.values.numpy()
    features = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": rows.segment_ids.values.numpy()}
    splits = rows.input_ids.row_splits.numpy()
    return {name: RaggedArray(values, splits) for name, values in (features | others).items()}


@on_host
def text_rows(tokenizer: Tokenizer, texts: Sequence[Sequence[str]], max_seq_length: int) -> FeatureRows:
    """Tokenizes each text or pair into a row; `texts` is (texts,) or (first texts, second texts)."""
    framer, tokens = Framer(tokenizer, max_seq_length), [encode(tokenizer, column, max_seq_length) for column in texts]
    rows = framer.frame(*tokens)
    whole = sum(column.row_lengths().numpy() for column in tokens)
    kept = rows.input_ids.row_lengths().numpy() - framer.special_tokens(len(tokens))
    return FeatureRows(features_of(rows), {}, rows.pad_id, truncation=Truncation.of(whole, kept))


def store(chunks: Iterable[FeatureRows]) -> FeatureRows:
    """Merges chunks of rows into FeatureRows on disk; at most one chunk is in memory."""
    chunk, files, lengths, values, keys, truncation = None, {}, [], [], [], Truncation()
    for chunk in chunks:
        with _room():
            files = files or {name: tempfile.TemporaryFile(dir=_folder()) for name in chunk.tokens}  # noqa: SIM115
            for name, arrays in chunk.tokens.items():
                for block in arrays.blocks():
                    files[name].write(block)
        lengths.append({name: chunk.lengths_of(name) for name in chunk.tokens})
        values.append(chunk.values)
        keys.append(chunk.keys)
        truncation += chunk.truncation
    if chunk is None:
        raise UserError("no example is left to train on; give a training file with at least one")
    with _room():
        for file in files.values():
            file.flush()
    tokens, splits = dict[str, RaggedArray](), list[np.ndarray]()
    for name, file in files.items():
        own = np.cumsum(np.concatenate([[0], *(part[name] for part in lengths)]))
        # Most features of a row are equally long: one array for all.
        splits.append(next((other for other in splits if np.array_equal(own, other)), own))
        tokens[name] = StoredArray(file, splits[-1], chunk.tokens[name].lead)
    joined = {name: np.concatenate([part[name] for part in values]) for name in chunk.values}
    held = None if chunk.keys is None else np.concatenate(keys)
    return FeatureRows(tokens, joined, chunk.pad_id, chunk.target, chunk.weight, truncation, held)


def chunked(examples: Iterable, size: int) -> Iterator[list]:
    """Yields lists of `size` examples."""
    examples = iter(examples)
    return iter(lambda: list(itertools.islice(examples, size)), [])


# /tmp may be in memory.
def _folder() -> str:
    # No alarm (B108): names in it are random, and made at once.
    return "/var/tmp" if "TMPDIR" not in os.environ and os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()  # nosec B108


@contextlib.contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot keep the training rows in '{_folder()}': {error.strerror}; set TMPDIR to a folder with room"
        ) from error


def weigh(rows: FeatureRows, labels: Sequence[str] | None, class_weights: str) -> FeatureRows:
    """Adds a loss weight by class to each training row.

    `class_weights` is "balanced" (rows / (classes * rows of the class)), or a list such as "no=1,yes=3", in which
    missing classes weigh 1.
    """
    if labels is None or rows.target != "label":
        raise UserError("--class_weights is for tasks that give every text a class; leave it out")
    classes = rows.values["label"]
    if class_weights == "balanced":
        counts = np.bincount(classes, minlength=len(labels))
        weights = len(classes) / (len(labels) * np.maximum(counts, 1))
    else:
        weights = np.ones(len(labels))
        for pair in class_weights.split(","):
            name, _, value = pair.rpartition("=")
            name = name or pair
            if name not in labels:
                raise UserError(
                    f"--class_weights names '{name}', which is none of {', '.join(labels)}; give balanced, or "
                    "name=weight"
                )
            weights[list(labels).index(name)] = _weight(value, class_weights)
    values = rows.values | {"class_weight": weights[classes].astype(np.float32)}
    return dataclasses.replace(rows, values=values, weight="class_weight")


def _weight(value: str, class_weights: str) -> float:
    try:
        weight = float(value)
    except ValueError:
        weight = -1.0
    if not 0 <= weight < float("inf"):
        raise UserError(f"--class_weights={class_weights}: '{value}' is no weight of 0 or more")
    return weight

"""What a model is given of a set of examples: rows of different lengths, padded only when they become a batch."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tfrecords.tokenizers.base import Tokenizer


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows of features; a row is one example, or one window of one.

    Attributes:
        tokens: by feature name one int32 array [length] a row, or [choices, length]; a row has one length for all its
            features. `input_ids`, `input_mask` and `segment_ids` are always there.
        values: by feature name an array [rows, ...].
        target: which feature is the label that `fit` gets as `y`; None where the model's loss finds its labels among
            the features.
        weight: which feature weighs the loss, [rows] or [rows, length].
        pad_id: fills up `input_ids`; all other features are filled up with 0.
    """

    tokens: Mapping[str, Sequence[np.ndarray]]
    values: dict[str, np.ndarray]
    pad_id: int
    target: str | None = None
    weight: str | None = None

    def __len__(self) -> int:
        return len(self.tokens["input_ids"])

    @property
    def lengths(self) -> np.ndarray:
        """int64 [rows], in tokens."""
        return np.array([row.shape[-1] for row in self.tokens["input_ids"]], np.int64)

    def batch(self, indices: Sequence[int], length: int) -> tuple:
        """Some rows, padded to `length` columns.

        Returns:
            (features,), or (features, target) or (features, target, weight): features a dict of arrays
            [batch, ..., length] or [batch, ...].
        """
        features = {name: self._padded(name, rows, indices, length) for name, rows in self.tokens.items()}
        features |= {name: values[indices] for name, values in self.values.items()}
        roles = [features.pop(name) for name in (self.target, self.weight) if name is not None]
        return (features, *roles)

    def _padded(self, name: str, rows: Sequence[np.ndarray], indices: Sequence[int], length: int) -> np.ndarray:
        return pad([rows[index] for index in indices], length, self.pad_id if name == "input_ids" else 0)


def pad(rows: Sequence[np.ndarray], length: int, value: int) -> np.ndarray:
    """int32 [rows, ..., length] from arrays [..., up to length], filled up with `value`."""
    padded = np.full((len(rows), *rows[0].shape[:-1], length), value, np.int32)
    for number, row in enumerate(rows):
        padded[number, ..., : row.shape[-1]] = row
    return padded


def padded_length(length: int, limit: int) -> int:
    """The columns of a batch whose longest row has `length`: few distinct shapes to compile for, and little padding.

    Multiples of 8 to 64, of 32 to 256, and of 64 beyond; never above `limit` unless `length` is.
    """
    step = 8 if length <= 64 else 32 if length <= 256 else 64
    return max(length, min(limit, -(-length // step) * step))


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """Token ids int32 [tokens] of each text."""
    ids, splits = tokenizer.encode_batch(texts)
    return [ids[start:end] for start, end in itertools.pairwise(splits)]


def frame(
    tokenizer: Tokenizer, first: np.ndarray, second: np.ndarray | None, max_seq_length: int
) -> tuple[np.ndarray, np.ndarray]:
    """[CLS] first [SEP], or [CLS] first [SEP] second [SEP], cut to `max_seq_length`: ids and segments, int32 [length].

    What does not fit is cut off the end of the longer text, a token at a time
    (google-research/albert classifier_utils.py, `_truncate_seq_pair`).
    """
    cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
    if second is None:
        ids = np.concatenate([cls, first[: max_seq_length - 2], sep])
        return ids.astype(np.int32), np.zeros(len(ids), np.int32)
    room = max_seq_length - 3
    kept_second = min(len(second), max(room // 2, room - len(first)))
    first, second = first[: room - kept_second], second[:kept_second]
    ids = np.concatenate([cls, first, sep, second, sep])
    segments = np.repeat(np.array([0, 1], np.int32), [len(first) + 2, len(second) + 1])
    return ids.astype(np.int32), segments

from collections.abc import Sequence

import numpy as np

from albert_tf.checkpoints.variables import Model, changed, encoder_of
from tfrecords.base.errors import UserError

_BY_PIECE = ("embeddings/word_embeddings", "masked_lm/output_bias")


def keep_pieces(model: Model, kept: Sequence[int], row_splits: Sequence[int] | None = None) -> Model:
    """Returns a new uncompiled model for a new vocabulary, whose entries get the weights of old ones.

    Args:
        model: any model or AlbertEncoder.
        kept: old ids, in the order of the new entries.
        row_splits: [new entries + 1]; new entry i is the mean of the ids kept[row_splits[i]:row_splits[i + 1]].

    >>> from albert_tf import AlbertConfig, AlbertEncoder
    >>> encoder = AlbertEncoder(AlbertConfig.named("albert_tiny").replace(vocab_size=20))
    >>> keep_pieces(encoder, [0, 1, 7]).config.vocab_size, keep_pieces(encoder, [0, 1, 7], [0, 1, 3]).config.vocab_size
    (3, 2)
    """
    config = encoder_of(model).config
    numbers = np.asarray(kept, np.int64)
    if not len(numbers) or numbers.min() < 0 or numbers.max() >= config.vocab_size:
        raise UserError(f"the pieces to keep must be some of the model's {config.vocab_size}")
    splits = np.arange(len(numbers) + 1) if row_splits is None else np.asarray(row_splits, np.int64)
    change = lambda name, value, shape: _means(value[numbers], splits) if name in _BY_PIECE else value  # noqa: E731
    return changed(model, config.replace(vocab_size=len(splits) - 1), change)


def _means(rows: np.ndarray, splits: np.ndarray) -> np.ndarray:
    counts = np.diff(splits).reshape((-1,) + (1,) * (rows.ndim - 1))
    return np.add.reduceat(rows, splits[:-1], axis=0) / counts.astype(rows.dtype)

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from albert_tf.checkpoints.variables import Model, encoder_of, named_variables, with_config
from albert_tf.config import AlbertConfig
from tfrecords.base.errors import UserError


def factorize_embeddings(model: Model, size: int, counts: Sequence[float] | None = None) -> Model:
    """Returns a new uncompiled model whose word embeddings are a table of `size` columns and a projection.

    The mean row of the old table is moved to the segment (or position) embeddings. The rest is approximated by its
    truncated singular value decomposition. Positions and segments keep hidden_size columns (`factorization` "word").

    Args:
        model: any model or AlbertEncoder. If its table has `size` columns already, the model itself is returned.
        size: below the present width.
        counts: [vocab_size], how often each vocabulary entry occurs. A row is weighted by sqrt(count + 1).

    Raises:
        UserError: the words are factorized already, or the size is too large.

    >>> from albert_tf import AlbertConfig, AlbertEncoder
    >>> sizes = dict(vocab_size=20, embedding_size=8, hidden_size=8, num_attention_heads=2, intermediate_size=12)
    >>> bert = AlbertEncoder(AlbertConfig(**sizes, num_hidden_layers=2, sharing="none"))
    >>> small = factorize_embeddings(bert, 3)
    >>> tuple(small.embeddings.word_embeddings.shape), tuple(small.embeddings.projection.kernel.shape)
    ((20, 3), (3, 8))
    """
    source = encoder_of(model)
    if size == source.config.embedding_size:
        return model
    check_size(source.config, size)
    left, kernel, mean = _decompose(word_table(source), size, counts)
    other = with_config(model, source.config.replace(embedding_size=size, factorization="word", always_project=False))
    before, after = named_variables(model), named_variables(other)
    for name, variable in after.items():
        if name in before and before[name].shape == variable.shape:
            variable.assign(ops.convert_to_numpy(before[name]))
    after["embeddings/word_embeddings"].assign(left)
    after["embeddings/projection/kernel"].assign(kernel)
    # Every token gets one row of either.
    tables = ("embeddings/token_type_embeddings", "embeddings/position_embeddings")
    next(after[name] for name in tables if name in after).assign_add(mean)
    return other


def word_table(encoder: Any) -> np.ndarray:
    """Returns the word embeddings after their projection: float32 [vocab_size, hidden_size]."""
    embeddings = encoder.embeddings
    table = ops.convert_to_numpy(embeddings.word_embeddings)
    if embeddings.projection is None:
        return table
    _check_is_table(encoder.config)
    return table @ ops.convert_to_numpy(embeddings.projection.kernel)


def check_size(config: AlbertConfig, size: int) -> None:
    """Raises UserError unless the embeddings can be factorized to `size` columns."""
    _check_is_table(config)
    if not config.tie_word_embeddings:
        raise UserError("tie_word_embeddings false: the head's own table of words is not factorized; leave their size")
    if not config.spec.has_norm:
        raise UserError("embeddings without a layer norm are not factorized afterwards; leave their size")
    if not 0 < size < config.embedding_size:
        raise UserError(
            f"embedding size {size} must be from 1 to below the model's {config.embedding_size}; at that nothing is cut"
        )


def _check_is_table(config: AlbertConfig) -> None:
    if config.is_projected and config.factorization != "word":
        raise UserError(
            f"the word embeddings are factorised already, at {config.embedding_size} columns with a layer norm "
            "before their projection, as ALBERT's; leave their size as it is"
        )


def _decompose(table: np.ndarray, size: int, counts: Sequence[float] | None) -> tuple[np.ndarray, ...]:
    mean = _mean(table, counts)
    centred = table - mean
    weighted = centred * _weights(table, counts)
    # The small square matrix has the same right singular vectors.
    _, vectors = np.linalg.eigh((weighted.T @ weighted).astype("float64"))
    kernel = vectors[:, ::-1][:, :size].T.astype("float32")
    # The nearest row in the kernel's space, whatever its weight.
    return centred @ kernel.T, kernel, mean


def _mean(table: np.ndarray, counts: Sequence[float] | None) -> np.ndarray:
    return np.average(table, axis=0, weights=_weights(table, counts)[:, 0] ** 2).astype("float32")


def _weights(table: np.ndarray, counts: Sequence[float] | None) -> np.ndarray:
    if counts is None:
        return np.ones((len(table), 1), "float32")
    counted = np.asarray(counts, "float64")[:, None] + 1
    return np.sqrt(counted / counted.mean()).astype("float32")

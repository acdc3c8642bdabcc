from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from albert_tf.checkpoints.variables import Model, changed, encoder_of, named_variables, with_config
from albert_tf.config import AlbertConfig
from tfrecords.base.errors import UserError, refuse

_BY_PIECE = ("embeddings/word_embeddings", "masked_lm/output_bias", "masked_lm/decoder", "query_weights")


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


def narrow_blocks(model: Model, size: int) -> Model:
    """Returns a new uncompiled model that keeps `size` feed-forward units in each block.

    These are the units whose input and output weights have the largest product of norms.

    >>> from albert_tf import AlbertConfig, AlbertEncoder
    >>> sizes = dict(vocab_size=20, embedding_size=8, hidden_size=8, num_attention_heads=2, intermediate_size=12)
    >>> narrow = narrow_blocks(AlbertEncoder(AlbertConfig(**sizes, num_hidden_layers=2)), 5)
    >>> tuple(narrow.halves_of("feed_forward")[0].intermediate.kernel.shape)
    (8, 5)
    """
    source = encoder_of(model)
    check_units(source.config, size)
    kept = [_largest(half, size) for half in source.halves_of("feed_forward")]

    def cut(name: str, value: np.ndarray, shape: tuple) -> np.ndarray:
        if value.shape == shape:
            return value
        number = int(name.partition("feed_forward_")[2].partition("/")[0])
        axis = next(axis for axis, width in enumerate(shape) if width != value.shape[axis])
        return np.take(value, kept[number], axis)

    return changed(model, source.config.replace(intermediate_size=size), cut)


def check_units(config: Any, size: int) -> None:
    """Raises UserError unless `size` is from 1 to below `intermediate_size`."""
    if not 0 < size < config.intermediate_size:
        raise UserError(f"intermediate size {size} must be from 1 to below the model's {config.intermediate_size}")


def _largest(half: Any, size: int) -> np.ndarray:
    inward, outward = (ops.convert_to_numpy(half.product(name).kernel) for name in ("intermediate", "output"))
    weights = np.linalg.norm(inward, axis=0) * np.linalg.norm(outward, axis=1)
    return np.sort(np.argsort(-weights, kind="stable")[:size])


def for_long_rows(model: Model, count: int = 0, attention_window: int = 0, global_attention_every: int = 0) -> Model:
    """Returns a new uncompiled model for rows of up to `count` tokens, to be trained further.

    New learned positions repeat the old ones (Longformer, arXiv:2004.05150, section 5). Rotary positions are
    unchanged. An argument of 0 keeps what it sets.

    >>> from albert_tf import AlbertConfig, AlbertEncoder
    >>> config = AlbertConfig(vocab_size=50, embedding_size=4, hidden_size=8, num_hidden_layers=2,
    ...                       num_attention_heads=2, intermediate_size=16, max_position_embeddings=6)
    >>> for_long_rows(AlbertEncoder(config), 14).config.max_seq_length
    14
    """
    config = encoder_of(model).config
    count = count or config.max_seq_length
    windows = {"attention_window": attention_window, "global_attention_every": global_attention_every}
    changes = {name: value for name, value in windows.items() if value}
    longer = config.replace(max_position_embeddings=count + config.position_offset, **changes)

    def repeated(name: str, value: np.ndarray, shape: tuple) -> np.ndarray:
        if name != "embeddings/position_embeddings":
            return value
        before, learned = np.split(value, [config.position_offset])
        return np.concatenate([before, learned[np.arange(count) % len(learned)]])

    return model if longer == config else changed(model, longer, repeated)


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
    refuse({
        "tie_word_embeddings false: the head's own table of words is not factorized; leave their size":
            not config.tie_word_embeddings,
        "embeddings without a layer norm are not factorized afterwards; leave their size":
            not config.spec.has_norm,
        f"embedding size {size} must be from 1 to below the model's {config.embedding_size}; at that nothing is cut":
            not 0 < size < config.embedding_size,
    })  # fmt: skip


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

from typing import Any

import numpy as np
from keras import ops

from albert_tf.checkpoints.variables import Model, changed, encoder_of
from tfrecords.base.errors import UserError


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

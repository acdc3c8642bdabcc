from typing import Any

import numpy as np
from keras import ops

from albert_tf.checkpoints.variables import Model, encoder_of, named_variables, with_config
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
    other = with_config(model, source.config.replace(intermediate_size=size))
    kept = [_largest(half, size) for half in source.halves_of("feed_forward")]
    before = named_variables(model)
    for name, variable in named_variables(other).items():
        value = ops.convert_to_numpy(before[name])
        if value.shape != variable.shape:
            number = int(name.partition("feed_forward_")[2].partition("/")[0])
            axis = next(axis for axis, width in enumerate(variable.shape) if width != value.shape[axis])
            value = np.take(value, kept[number], axis)
        variable.assign(value)
    return other


def check_units(config: Any, size: int) -> None:
    """Raises UserError unless `size` is from 1 to below `intermediate_size`."""
    if not 0 < size < config.intermediate_size:
        raise UserError(f"intermediate size {size} must be from 1 to below the model's {config.intermediate_size}")


def _largest(half: Any, size: int) -> np.ndarray:
    inward, outward = (ops.convert_to_numpy(half.product(name).kernel) for name in ("intermediate", "output"))
    weights = np.linalg.norm(inward, axis=0) * np.linalg.norm(outward, axis=1)
    return np.sort(np.argsort(-weights, kind="stable")[:size])

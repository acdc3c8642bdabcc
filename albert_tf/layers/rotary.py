"""Rotary positions: queries and keys turned by their places, so that scores depend on distances alone."""

from typing import Any

from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor


class Rotation:
    """Turns the heads of queries and keys by the positions of their tokens (Su et al. 2021, section 3.2.2).

    Number i of a head and number i + head_size / 2 are one pair, turned by position * theta**(-2i / head_size), as
    in GPT-NeoX, Llama and ModernBERT. A class, not a tuple of tensors: those Keras would round to a layer's dtype.

    Args:
        config: of the encoder.
        length: tokens a row.
        positions: int32 [batch, sequence]; 0, 1, ... where None.
    """

    def __init__(self, config: AlbertConfig, length: Any, positions: Tensor = None):
        if positions is None:
            positions = ops.arange(length)[None]
        half = config.head_size // 2
        frequencies = config.rotary_theta ** (-ops.arange(half, dtype="float32") / half)
        angles = ops.cast(positions, "float32")[:, :, None, None] * frequencies
        cosines, sines = ops.cos(angles), ops.sin(angles)
        self._cosines = ops.concatenate([cosines, cosines], axis=-1)
        self._sines = ops.concatenate([-sines, sines], axis=-1)

    def __call__(self, heads: Tensor) -> Tensor:
        """Turns [batch, sequence, heads, head_size], in float32 inside."""
        exact = ops.cast(heads, "float32")
        first, second = ops.split(exact, 2, axis=-1)
        turned = exact * self._cosines + ops.concatenate([second, first], axis=-1) * self._sines
        return ops.cast(turned, heads.dtype)

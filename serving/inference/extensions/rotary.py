"""Rotary positions for exported models."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.layers.block import Attention
from serving.inference.kernels import ExportedExtension


class ExportedRotary(ExportedExtension):
    """Reorders queries and keys so that the numbers of a rotated pair are neighbours; scores stay the same."""

    def fold(self, parts: Sequence[np.ndarray], what: str, half: tuple[str, int]) -> Sequence[np.ndarray]:
        query, key, value = parts
        count = self.config.num_attention_heads
        order = np.arange(self.config.hidden_size).reshape(count, 2, -1).transpose(0, 2, 1).reshape(-1)
        return query[..., order], key[..., order], value

    def rows(self, rows: Any, features: dict[str, Any]) -> Any:
        for name, angles in self.extension.angles(rows).items():
            rows.add_feature(name, tf.complex(tf.cos(angles), tf.sin(angles)))
        return rows

    def attention(self, attention: Attention) -> Attention:
        return dataclasses.replace(attention, rotate=rotate)


def rotate(heads: Tensor, rotation: Tensor) -> Tensor:
    """Rotates neighbouring pairs in [rows, heads, length, head_size] by complex [rows, length, head_size / 2]."""
    rows, count, length, size = tf.unstack(tf.shape(heads))
    pairs = tf.bitcast(tf.reshape(tf.cast(heads, tf.float32), [rows, count, length * size // 2, 2]), tf.complex64)
    turned = pairs * tf.reshape(rotation, [rows, 1, length * size // 2])
    return tf.cast(tf.reshape(tf.bitcast(turned, tf.float32), tf.shape(heads)), heads.dtype)

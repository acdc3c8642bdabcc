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
    shape = tf.shape(heads)
    pairs = tf.reshape(tf.cast(heads, tf.float32), tf.concat([shape[:3], [heads.shape[3] // 2, 2]], 0))
    turned = tf.bitcast(pairs, tf.complex64) * tf.expand_dims(rotation, 1)
    return tf.cast(tf.reshape(tf.bitcast(turned, tf.float32), shape), heads.dtype)

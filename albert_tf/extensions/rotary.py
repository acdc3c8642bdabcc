"""Rotary positions: rotates queries and keys by position, so that scores depend on distances alone."""

import dataclasses
from typing import Any

from keras import ops

from albert_tf.base import Tensor
from albert_tf.config.extension import Extension
from albert_tf.config.registry import REGISTRY, Spec, Weights
from tfrecords.base.errors import UserError

# The values of the key that several extensions share.
_TYPES = [value for entry in REGISTRY.values() if entry.keys[0] == "position_type" for value in entry.values]


@dataclasses.dataclass(frozen=True)
class Rotary(Extension):
    """Rotates the heads of queries and keys by their tokens' positions (arXiv:2104.09864, section 3.2.2).

    Elements i and i + head_size / 2 of a head are a pair, which is rotated by position * theta**(-2i / head_size), as
    in GPT-NeoX, Llama and ModernBERT. Rows may have any length.

    Attributes:
        position_type: "rotary".
        rotary_theta: base theta; pair i has a wavelength of 2 pi theta**(2i / head_size) tokens.
        rotary_local_theta: base of the steps that attend within the attention_window; 0 for that of all.
    """

    name = "rotary"
    choices = {"position_type": ("absolute", *_TYPES)}
    limits = {"rotary_theta": ("above 0", lambda value: value > 0)}
    position_type: str = "absolute"
    rotary_theta: float = 10000.0
    rotary_local_theta: float = 0.0

    def check(self, config: Any) -> None:
        if config.head_size % 2:
            raise UserError(f"position_type 'rotary' turns pairs of numbers; a head of {config.head_size} is odd")

    def conflicts(self) -> dict[str, str]:
        return {"position_offset": "it counts rows of a table of positions, and rotary positions have none"}

    def spec(self, spec: Spec) -> Spec:
        return spec._replace(has_positions=False)

    def rows(self, rows: Any, features: dict[str, Any], weights: Weights) -> Any:
        for name, theta in self.bases(rows).items():
            rows.add_feature(name, rotation(rows.token_positions(), rows.config.head_size, theta))
        return rows

    def bases(self, rows: Any) -> dict[str, float]:
        """Returns theta for each feature of rotations, and makes attention choose its feature by the step."""
        window = rows.config.extension("window")
        if not self.rotary_local_theta or window is None:
            return {"rotation": self.rotary_theta}
        names = ("rotation", "local_rotation")
        rows.attention = dataclasses.replace(rows.attention, rotation=lambda step: names[window.is_local(step)])
        return dict(zip(names, (self.rotary_theta, self.rotary_local_theta)))

    def attention(self, attention: Any, weights: Weights) -> Any:
        return dataclasses.replace(attention, rotate=rotate)


def rotation(positions: Tensor, head_size: int, theta: float) -> Tensor:
    """Returns cosines and signed sines for positions [...], which `rotate` uses: float32 [..., 2, head_size]."""
    half = head_size // 2
    frequencies = theta ** (-ops.arange(half, dtype="float32") / half)
    angles = ops.cast(positions, "float32")[..., None] * frequencies
    cosines, sines = ops.cos(angles), ops.sin(angles)
    return ops.stack([ops.concatenate([cosines, cosines], axis=-1), ops.concatenate([-sines, sines], axis=-1)], axis=-2)


def rotate(heads: Tensor, rotation: Tensor) -> Tensor:
    """Rotates heads [rows, heads, tokens, head_size] by `rotation`, [rows or 1, tokens, 2, head_size]."""
    exact = ops.cast(heads, "float32")
    first, second = ops.split(exact, 2, axis=-1)
    cosines, sines = rotation[:, None, :, 0], rotation[:, None, :, 1]
    turned = exact * cosines + ops.concatenate([second, first], axis=-1) * sines
    return ops.cast(turned, heads.dtype)

"""Rotary positions: rotates queries and keys by position, so that scores depend on distances alone."""

import dataclasses
from typing import Any

import numpy as np
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
    in GPT-NeoX and Llama. Rows may have any length.

    Attributes:
        position_type: "rotary".
        rotary_theta: base theta; pair i has a wavelength of 2 pi theta**(2i / head_size) tokens.
        rotary_local_theta: base of the steps that attend within the attention_window; 0 for that of all.
        rotary_factor: divisor of all positions.
    """

    name = "rotary"
    choices = {"position_type": ("absolute", *_TYPES)}
    limits = dict.fromkeys(("rotary_theta", "rotary_factor"), ("above 0", lambda value: value > 0))
    position_type: str = "absolute"
    rotary_theta: float = 10000.0
    rotary_local_theta: float = 0.0
    rotary_factor: float = 1.0

    def check(self, config: Any) -> None:
        if config.head_size % 2:
            raise UserError(f"position_type 'rotary' turns pairs of numbers; a head of {config.head_size} is odd")

    def conflicts(self) -> dict[str, str]:
        return {"position_offset": "it counts rows of a table of positions, and rotary positions have none"}

    def spec(self, spec: Spec) -> Spec:
        return spec._replace(has_positions=False)

    def rows(self, rows: Any, features: dict[str, Any], weights: Weights) -> Any:
        for name, angles in self.angles(rows).items():
            rows.add_feature(name, rotation(ops.cos(angles), ops.sin(angles)))
        return rows

    def angles(self, rows: Any) -> dict[str, Tensor]:
        """Returns the angles of tokens and pairs, float32 [rows or 1, tokens, head_size / 2], for each base.

        Also makes attention choose its feature of rotations, named as the angles, by the step.
        """
        window, thetas = rows.config.extension("window"), {"rotation": self.rotary_theta}
        if self.rotary_local_theta and window is not None:
            thetas["local_rotation"], names = self.rotary_local_theta, ("rotation", "local_rotation")
            rows.attention = dataclasses.replace(rows.attention, rotation=lambda step: names[window.is_local(step)])
        positions, size = ops.cast(rows.token_positions(), "float32")[..., None], rows.config.head_size
        return {name: positions * frequencies(size, theta, self.rotary_factor) for name, theta in thetas.items()}

    def attention(self, attention: Any, weights: Weights) -> Any:
        return dataclasses.replace(attention, rotate=rotate)


def frequencies(head_size: int, theta: float, factor: float) -> np.ndarray:
    """Returns the angles of pairs at position 1, float32 [head_size / 2]."""
    # Rounded as in transformers (modeling_rope_utils.py): at position 3,000 the last bit is 1e-4 of an angle.
    powers = np.power(theta, np.arange(0, head_size, 2) / head_size).astype("float32")
    return np.float32(1) / powers / np.float32(factor)


def rotation(cosines: Tensor, sines: Tensor) -> Tensor:
    """Returns cosines and signed sines, which `rotate` uses: float32 [..., 2, head_size]."""
    return ops.stack([ops.concatenate([cosines, cosines], axis=-1), ops.concatenate([-sines, sines], axis=-1)], axis=-2)


def rotate(heads: Tensor, rotation: Tensor) -> Tensor:
    """Rotates heads [rows, heads, tokens, head_size] by `rotation`, [rows or 1, tokens, 2, head_size]."""
    exact = ops.cast(heads, "float32")
    first, second = ops.split(exact, 2, axis=-1)
    cosines, sines = rotation[:, None, :, 0], rotation[:, None, :, 1]
    turned = exact * cosines + ops.concatenate([second, first], axis=-1) * sines
    return ops.cast(turned, heads.dtype)

"""Residual scaling: scales down residual branches by the number of times that they are added.

Source: arXiv:2606.18524. If N steps share weights, their outputs add up in the same direction, so each is multiplied by
1 / N. The outputs of L separate blocks are independent, so each is multiplied by 1 / sqrt(L).
"""

import dataclasses
from typing import Any

from albert_tf.extension import Extension


@dataclasses.dataclass(frozen=True)
class ResidualScaling(Extension):
    """Scales the residual branches of blocks.

    Attributes:
        residual_scaling: "none", or "depth".
    """

    name, for_xla = "residual_scaling", True
    choices = {"residual_scaling": ("none", "depth")}
    residual_scaling: str = "none"

    def conflicts(self) -> dict[str, str]:
        return {
            "random_depth_min": "the number of steps is drawn, and the scale follows from it",
            "equilibrium_solver": "the number of steps is not known beforehand",
        }

    def branch_scale(self, config: Any, steps: tuple[int, ...]) -> float:
        return 1 / len(steps) if len(steps) > 1 else config.num_steps**-0.5

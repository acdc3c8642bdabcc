"""Low rank by depth: a shared dense layer's weights differ a little from step to step.

Source: Relaxed Recursive Transformers (arXiv:2410.20672): at step i the kernel is W + A_i B_i. The kernels of an
encoder multiply; this says what.
"""

import dataclasses
from typing import Any

from albert_tf.extension import Extension, Holder, Weight, Weights

_TARGETS = {"attention": ("attention", "both"), "feed_forward": ("ffn", "both")}


@dataclasses.dataclass(frozen=True)
class DepthLora(Extension):
    """Adds to a dense layer that several steps share inputs @ a[i] @ b[i] at its i-th step; b begins at 0."""

    name, for_litert = "depth_lora", True
    depth_lora_rank: int = 0
    depth_lora_target: str = "both"

    def holders(self, config: Any, owner: str, steps: tuple[int, ...]) -> list[Holder]:
        if self.depth_lora_target not in _TARGETS.get(owner, ()) or len(steps) < 2:
            return []
        inside, width, count, rank = config.intermediate_size, config.hidden_size, len(steps), self.depth_lora_rank
        shapes = dict.fromkeys(("query", "key", "value", "output"), (width, width))
        if owner == "feed_forward":
            gate = {"gate": (width, inside)} if config.feed_forward == "glu" else {}
            shapes = {"intermediate": (width, inside)} | gate | {"output": (inside, width)}
        return [
            Holder(
                attribute=f"lora_{name}",
                layer=f"depth_lora_{name}",
                disk=f"adapters/depth_lora{f'_{place}' if place else ''}",
                weights={
                    "a": Weight((count, inputs, rank), "normal", per_step=True),
                    "b": Weight((count, rank, units), per_step=True),
                },
            )
            for place, (name, (inputs, units)) in enumerate(shapes.items())
        ]

    def low_rank(self, weights: Weights, half: tuple[str, int], product: str) -> tuple[Any, Any] | None:
        own, layer = weights.held[half], f"depth_lora_{product}"
        return (own[f"{layer}/a"], own[f"{layer}/b"]) if f"{layer}/a" in own else None

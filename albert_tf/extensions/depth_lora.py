"""Depth LoRA: low-rank terms make a shared dense layer's weights differ from step to step.

Source: Relaxed Recursive Transformers (arXiv:2410.20672): at step i the kernel is W + A_i B_i.
"""

import dataclasses
import math
from typing import Any

from albert_tf.config.extension import Extension, RowCost, Weight, WeightLayer
from albert_tf.config.registry import Weights
from albert_tf.layers.depth import plan
from albert_tf.layers.weights import product_sizes
from tfrecords.base.errors import UserError

_TARGETS = {"attention": ("attention", "both"), "feed_forward": ("ffn", "both")}


@dataclasses.dataclass(frozen=True)
class DepthLora(Extension):
    """Adds inputs @ a[i] @ b[i] to a shared dense layer's output at its i-th step; b begins at 0.

    Attributes:
        depth_lora_rank: the rank; 0 for none.
        depth_lora_target: part of blocks that gets low-rank terms: "attention", "ffn" or "both".
    """

    name, begins_plain = "depth_lora", True
    choices = {"depth_lora_target": ("attention", "ffn", "both")}
    depth_lora_rank: int = 0
    depth_lora_target: str = "both"

    def check(self, config: Any) -> None:
        if self.depth_lora_rank > (most := max(config.hidden_size, config.intermediate_size)):
            raise UserError(f"depth_lora_rank {self.depth_lora_rank} is over the blocks' width {most}")
        for half, targets in _TARGETS.items():
            runs = [getattr(step, half) for step in plan(config)]
            if self.depth_lora_target in targets and len(set(runs)) < len(runs):
                return
        raise UserError(
            f"depth_lora_rank {self.depth_lora_rank} with depth_lora_target '{self.depth_lora_target}' needs blocks"
            " that several steps share there, and this configuration has none; leave it at 0"
        )

    def weight_layers(self, config: Any, owner: str, steps: tuple[int, ...]) -> list[WeightLayer]:
        if self.depth_lora_target not in _TARGETS.get(owner, ()) or len(steps) < 2:
            return []
        count, rank = len(steps), self.depth_lora_rank
        return [
            WeightLayer(
                attribute=f"lora_{name}",
                layer=f"depth_lora_{name}",
                disk=f"adapters/depth_lora{f'_{place}' if place else ''}",
                weights={
                    "a": Weight((count, inputs, rank), "normal", per_step=True),
                    "b": Weight((count, rank, units), per_step=True),
                },
            )
            for place, (name, (inputs, units)) in enumerate(product_sizes(config, owner).items())
        ]

    def unshared(self) -> dict[str, Any]:
        return {"depth_lora_rank": 0, "depth_lora_target": "both"}

    def row_cost(self, config: Any, targets: int, cost: RowCost) -> RowCost:
        steps, products = plan(config), cost.products
        for half in _TARGETS:
            runs = [getattr(step, half) for step in steps]
            for i in set(runs):
                own = tuple(number for number, run in enumerate(runs) if run == i)
                for holder in self.weight_layers(config, half, own):
                    products += sum(math.prod(weight.shape) for weight in holder.weights.values())
        return cost._replace(products=products)

    def low_rank(self, weights: Weights, half: tuple[str, int], product: str) -> tuple[Any, Any] | None:
        own, layer = weights.by_owner[half], f"depth_lora_{product}"
        return (own[f"{layer}/a"], own[f"{layer}/b"]) if f"{layer}/a" in own else None

"""Low rank by depth: a shared dense layer's weights differ a little from step to step.

Source: Relaxed Recursive Transformers (arXiv:2410.20672): at step i the kernel is W + A_i B_i.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.dense import initializer
from albert_tf.layers.depth import of_step, visit_of


class DepthLora(keras.layers.Layer):
    """Computes inputs @ a[i] @ b[i] for the i-th of the steps that run a dense layer; b begins at 0.

    Args:
        config: of the encoder.
        inputs: width of the dense layer's inputs.
        units: its outputs.
        steps: numbers of the plan's steps that run the layer.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(self, config: AlbertConfig, inputs: int, units: int, steps: Sequence[int], **kwargs: Any):
        super().__init__(**kwargs)
        self.config, self.inputs, self.units, self.steps = config, inputs, units, tuple(steps)

    def build(self, input_shape: Any = None) -> None:
        count, rank = len(self.steps), self.config.depth_lora_rank
        self.a = self.add_weight(name="a", shape=(count, self.inputs, rank), initializer=initializer(self.config))
        self.b = self.add_weight(name="b", shape=(count, rank, self.units), initializer="zeros")

    def call(self, inputs: Tensor, step: Tensor) -> Tensor:
        """Gives what is added to the dense layer's product at a step: [tokens, inputs] to [tokens, units]."""
        visit = self.visit(step)
        return ops.matmul(ops.matmul(inputs, of_step(self.a, visit)), of_step(self.b, visit))

    def visit(self, step: Tensor) -> Tensor:
        """Tells which of the steps that run the layer a step of the plan is."""
        return visit_of(self.config, self.steps, step)


def make_adapters(
    config: AlbertConfig, half: str, shapes: dict[str, tuple[int, int]], steps: Sequence[int], dtype: Any
) -> dict[str, DepthLora]:
    """Makes the adapters of a block's half; none where `config` asks for none, or the half runs once.

    Args:
        config: of the encoder.
        half: "attention" or "ffn".
        shapes: inputs and units of its dense layers, by name.
        steps: numbers of the steps that run the half.
        dtype: the layers' policy.
    """
    if not config.depth_lora_rank or config.depth_lora_target not in (half, "both") or len(steps) < 2:
        return {}
    return {
        name: DepthLora(config, *shape, steps, dtype=dtype, name=f"depth_lora_{name}") for name, shape in shapes.items()
    }


def adapted(layer: keras.layers.Dense, adapter: DepthLora | None, inputs: Tensor, step: Tensor) -> Tensor:
    """Gives the layer's product of inputs, and what its adapter, if there is one, adds at a step."""
    product = layer(inputs)
    return product if adapter is None else product + adapter(inputs, step=step)

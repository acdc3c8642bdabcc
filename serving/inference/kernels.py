"""Who multiplies in an export: kernels of float32 or bfloat16, and what records their inputs."""

from typing import Any

import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from albert_tf.layers.block import Kernels, Step
from serving.inference.dense import act
from serving.inference.layers import AttentionHalf, FeedForwardHalf

# What a Recorder calls the first and the last product of attention and of the feed-forward network.
RECORDED = ("query_key_value", "attention", "intermediate", "feed_forward")


class FloatKernels(Kernels):
    """Multiplies by the products of halves.

    Args:
        config: of the encoder.
        attentions: its attention halves.
        feed_forwards: its other halves.
    """

    def __init__(self, config: AlbertConfig, attentions: list[AttentionHalf], feed_forwards: list[FeedForwardHalf]):
        self.config, self.is_pre = config, config.norm_position == "pre"
        self.scale = config.head_size**-0.5, 1.0
        self.halves: dict[str, list[Any]] = {"attention": attentions, "feed_forward": feed_forwards}

    def half(self, kind: str, which: Step) -> Any:
        """Returns the half that runs at a step."""
        return self.halves[kind][getattr(which, kind)]

    def half_input(self, half: str, which: Step, hidden: Tensor) -> Tensor:
        return self.half(half, which).layer_norm(hidden) if self.is_pre else hidden

    def query_key_value(self, which: Step, step: Tensor, inputs: Tensor, attended: Tensor) -> Tensor:
        """Returns [tokens, 3 * hidden_size]; also the queries of what is remembered, which nobody reads."""
        part = self.half("attention", which)
        return part.query_key_value(attended, part.low_rank.get("query_key_value", attended, step))

    def dense(self, name: str, which: Step, step: Tensor, inputs: Tensor) -> Tensor:
        part = self.half("feed_forward", which)
        product = getattr(part, name)(inputs, part.low_rank.get(name, inputs, step))
        return act(self.config.hidden_act, product) if name == "intermediate" and not part.is_fused else product

    def add_to_residual(self, half: str, which: Step, step: Tensor, inside: Tensor, residual: Tensor) -> Tensor:
        part = self.half(half, which)
        total = part.output(inside, part.low_rank.get("output", inside, step, residual))
        return total if self.is_pre else part.layer_norm(total)

    def multiply(self, first: Tensor, second: Tensor, transpose_b: bool = False) -> Tensor:
        """Multiplies matrices, as tf.matmul does."""
        return tf.matmul(first, second, transpose_b=transpose_b)

    def softmax(self, scores: Tensor, step: Tensor, part: Any = None) -> Tensor:
        return tf.nn.softmax(scores)


class Recorder(FloatKernels):
    """Kernels that note the largest absolute value that comes into each product at each step, of `count` tokens.

    What numbers of tokens are rounded up by comes after these and counts nothing: nobody reads it.

    Attributes:
        largest: by step and one of RECORDED.
    """

    def __init__(self, kernels: FloatKernels, count: Tensor):
        super().__init__(kernels.config, kernels.halves["attention"], kernels.halves["feed_forward"])
        self.count, self.largest = count, dict[tuple[int, str], float]()

    def query_key_value(self, which: Step, step: Tensor, inputs: Tensor, attended: Tensor) -> Tensor:
        self._note(step, "query_key_value", attended)
        return super().query_key_value(which, step, inputs, attended)

    def dense(self, name: str, which: Step, step: Tensor, inputs: Tensor) -> Tensor:
        self._note(step, "intermediate", inputs)
        return super().dense(name, which, step, inputs)

    def add_to_residual(self, half: str, which: Step, step: Tensor, inside: Tensor, residual: Tensor) -> Tensor:
        self._note(step, half, inside)
        return super().add_to_residual(half, which, step, inside, residual)

    def _note(self, step: int, name: str, inputs: Tensor) -> None:
        self.largest[step, name] = max(self.largest.get((step, name), 0.0), largest_of(inputs[: self.count]))


def largest_of(inputs: Tensor) -> float:
    """Returns the largest absolute value, but no 0."""
    return max(1e-6, float(tf.reduce_max(tf.abs(inputs))))

"""The distinct blocks of a plan over depth: those that share a half hold the same one."""

from collections.abc import Sequence
from typing import Any

from albert_tf.config import AlbertConfig
from albert_tf.layers.block import FeedForward, SelfAttention, TransformerBlock
from albert_tf.layers.depth import Step
from albert_tf.layers.relative_attention import RelativeAttention


def make_blocks(
    config: AlbertConfig, steps: Sequence[Step], distinct: Sequence[Step], dtype: Any
) -> list[TransformerBlock]:
    """Makes the blocks of a plan.

    Args:
        config: of the encoder.
        steps: of the whole plan.
        distinct: those of different weights; one block is made for each.
        dtype: the layers' policy.
    """
    make_attention = RelativeAttention if config.position_type == "relative" else SelfAttention
    attentions: dict[int, SelfAttention] = {
        half: make_attention(config, numbers, dtype=dtype, name="attention")
        for half, numbers in _by_half([step.attention for step in steps]).items()
    }
    feed_forwards = {
        half: FeedForward(config, numbers, dtype=dtype, name="feed_forward")
        for half, numbers in _by_half([step.feed_forward for step in steps]).items()
    }
    return [
        TransformerBlock(attentions[s.attention], feed_forwards[s.feed_forward], dtype=dtype, name=f"block_{i}")
        for i, s in enumerate(distinct)
    ]


def _by_half(halves: Sequence[int]) -> dict[int, list[int]]:
    """The numbers of the steps that run each half."""
    return {half: [step for step, other in enumerate(halves) if other == half] for half in dict.fromkeys(halves)}

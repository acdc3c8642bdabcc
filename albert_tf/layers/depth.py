"""Which weights run at which depth step."""

from typing import NamedTuple

from albert_tf.config import AlbertConfig


class Step(NamedTuple):
    """Indices into the encoder's attention and feed-forward sub-layers."""

    attention: int
    feed_forward: int


class Segment(NamedTuple):
    """Some steps in a row, and how often that row is repeated."""

    steps: tuple[Step, ...]
    repeats: int


def plan(config: AlbertConfig) -> list[Step]:
    """The weights of every executed block, in order: num_hidden_layers x inner_group_num steps.

    A shared half belongs to the group `layer * groups // layers`. Whole numbers: the float forms of google-research
    and HuggingFace skip or repeat a group for some depths (22 layers in 22 groups is the first).
    """
    steps = []
    for layer in range(config.num_hidden_layers):
        group = layer * config.num_hidden_groups // config.num_hidden_layers
        for inner in range(config.inner_group_num):
            shared = group * config.inner_group_num + inner
            own = layer * config.inner_group_num + inner
            steps.append(
                Step(
                    attention=shared if config.sharing in ("all", "attention") else own,
                    feed_forward=shared if config.sharing in ("all", "ffn") else own,
                )
            )
    return steps


def segments(config: AlbertConfig) -> list[Segment]:
    """The plan with equal neighbouring layers counted instead of listed: one loop each."""
    steps, inner = plan(config), config.inner_group_num
    layers = [tuple(steps[start : start + inner]) for start in range(0, len(steps), inner)]
    result: list[Segment] = []
    for layer in layers:
        if result and result[-1].steps == layer:
            result[-1] = Segment(layer, result[-1].repeats + 1)
        else:
            result.append(Segment(layer, 1))
    return result

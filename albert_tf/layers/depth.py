"""Which weights run at which depth step, and how the steps are applied."""

from collections.abc import Callable
from typing import NamedTuple

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor


class Step(NamedTuple):
    """Says which attention and which feed-forward sub-layer run, by their indices in the encoder."""

    attention: int
    feed_forward: int


class Segment(NamedTuple):
    """Names some steps in a row, and how often that row is repeated."""

    steps: tuple[Step, ...]
    repeats: int


def plan(config: AlbertConfig) -> list[Step]:
    """Lists the weights of every executed block, in order: num_hidden_layers x inner_group_num steps.

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
    """Cuts the plan into runs of equal layers, counted instead of listed: one loop each."""
    steps, inner = plan(config), config.inner_group_num
    layers = [tuple(steps[start : start + inner]) for start in range(0, len(steps), inner)]
    result: list[Segment] = []
    for layer in layers:
        if result and result[-1].steps == layer:
            result[-1] = Segment(layer, result[-1].repeats + 1)
        else:
            result.append(Segment(layer, 1))
    return result


def repeat(step: Callable, times: int, hidden: Tensor) -> Tensor:
    """Applies step(i, hidden) for i = 0 .. times - 1 as one loop in the graph, differentiable on every backend."""
    if times == 1:
        return step(0, hidden)
    if keras.backend.backend() == "jax":
        # lax.while_loop has no reverse gradient; fori_loop with a fixed count has.
        return ops.fori_loop(0, times, step, hidden)
    # XLA needs the bound to size what the backward pass keeps.
    return ops.while_loop(
        lambda i, hidden: i < times,
        lambda i, hidden: (i + 1, step(i, hidden)),
        (0, hidden),
        maximum_iterations=times,
    )[1]

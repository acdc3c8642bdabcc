"""Which weights run at which depth step, and how the steps are applied."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.depth_plan import read_depth_plan


class Step(NamedTuple):
    """Says which attention and which feed-forward sub-layer run, by their indices in the encoder."""

    attention: int
    feed_forward: int


class Segment(NamedTuple):
    """Names some steps in a row, and how often that row is repeated."""

    steps: tuple[Step, ...]
    repeats: int


def cycles(config: AlbertConfig) -> list[tuple[Step, ...]]:
    """Lists the steps in the rows that may repeat: a part's blocks run once, or a layer's inner groups.

    A shared half belongs to the group `layer * groups // layers`. Whole numbers: the float forms of google-research
    and HuggingFace skip or repeat a group for some depths (22 layers in 22 groups is the first).
    """
    result: list[tuple[Step, ...]] = []
    own = 0
    for shared in _shared_cycles(config):
        result.append(
            tuple(
                Step(
                    attention=half if config.sharing in ("all", "attention") else own + offset,
                    feed_forward=half if config.sharing in ("all", "ffn") else own + offset,
                )
                for offset, half in enumerate(shared)
            )
        )
        own += len(shared)
    return result


def _shared_cycles(config: AlbertConfig) -> list[range]:
    """The numbers of the blocks in every cycle, were both halves shared."""
    inner, layers = config.inner_group_num, config.num_hidden_layers
    if not config.depth_plan:
        groups = [layer * config.num_hidden_groups // layers for layer in range(layers)]
        return [range(group * inner, (group + 1) * inner) for group in groups]
    result, first = list[range](), 0
    for part in read_depth_plan(config.depth_plan):
        result += [range(first + row.start, first + row.stop, row.step) for row in part.cycles]
        first += part.blocks
    return result


def plan(config: AlbertConfig) -> list[Step]:
    """Lists the weights of every executed block, in order: `config.num_steps` of them."""
    return [step for cycle in cycles(config) for step in cycle]


def segments(config: AlbertConfig) -> list[Segment]:
    """Cuts the plan into runs of equal cycles, counted instead of listed: one loop each."""
    result: list[Segment] = []
    for cycle in cycles(config):
        if result and result[-1].steps == cycle:
            result[-1] = Segment(cycle, result[-1].repeats + 1)
        else:
            result.append(Segment(cycle, 1))
    return result


def of_step(table: Any, step: Any) -> Any:
    """Gives the row of a step out of a weight [steps, ...]; `step` is an int, or a scalar tensor within a loop."""
    return ops.convert_to_tensor(table)[step]


def repeat(step: Callable, times: int, state: Any) -> Any:
    """Applies step(i, state) for i = 0 .. times - 1 as one loop in the graph, differentiable on every backend.

    Args:
        step: a function of the number i, an int or a scalar tensor, and the state; it gives the next state.
        times: how often.
        state: a tensor, or tensors in tuples, whose shapes stay.
    """
    if times == 1:
        return step(0, state)
    if keras.backend.backend() == "jax":
        # lax.while_loop has no reverse gradient; fori_loop with a fixed count has.
        return ops.fori_loop(0, times, step, state)
    # XLA needs the bound to size what the backward pass keeps.
    return ops.while_loop(
        lambda i, state: i < times,
        lambda i, state: (i + 1, step(i, state)),
        (0, state),
        maximum_iterations=times,
    )[1]

"""The walks over depth: every step listed in the graph, graph loops, or what repeats run to its fixed point."""

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.depth import Draw, Segment, plan, repeat, run_if, segments
from albert_tf.layers.equilibrium import RectangleRows
from albert_tf.layers.equilibrium_walk import Equilibrium, repeated_segment


def cycles(config: AlbertConfig, apply: Callable) -> list[Callable]:
    """Makes functions (i, state) of the plan's segments, which run the steps of one for the i-th time.

    Args:
        config: what the plan follows from.
        apply: a function of the weights (a `Step`), the step's number and the state, which gives the new state and the
            attention probabilities.

    Returns:
        A function for each segment, which gives the new state.
    """
    functions, done = list[Callable](), 0
    for segment in segments(config):

        def cycle(i: Tensor, state: Any, segment: Segment = segment, done: int = done) -> Any:
            for offset, which in enumerate(segment.steps):
                state, _ = apply(which, done + i * len(segment.steps) + offset, state)
            return state

        functions.append(cycle)
        done += segment.repeats * len(segment.steps)
    return functions


def list_steps(
    config: AlbertConfig, apply: Callable, state: Any, show: Callable, recompute: bool, draw: Draw | None, drawn: Tensor
) -> tuple[Any, list[Tensor], list[Tensor]]:
    """Runs the plan step by step.

    Args:
        config: as for `cycles`, like `apply`.
        apply: see `cycles`.
        state: before the first step.
        show: from a state to what it would come to were it the last.
        recompute: whether the backward pass keeps a step's input alone.
        draw: what the number of times was drawn by, or None.
        drawn: how often the repeated segment is run, an int32 scalar, or None: as often as the plan has it.

    Returns:
        The last state; what every state would come to, where a step that is not run leaves the state as it is; and the
        attention probabilities of every step, but none of those that are drawn.
    """
    steps = plan(config)
    turns = draw.turns(config) if draw is not None and drawn is not None else [-1] * len(steps)
    wrap = keras.remat if recompute else lambda run: run
    shown, attentions = [show(state)], list[Tensor]()
    for step, (which, turn) in enumerate(zip(steps, turns)):
        run = functools.partial(apply, which, step)
        if draw is not None and turn >= draw.least:
            # TensorFlow finds no gradient of a recomputed step within a condition.
            state = wrap(functools.partial(_run_drawn, run, turn))(state, drawn)
        else:
            state, probabilities = wrap(run)(state)
            attentions.append(probabilities)
        shown.append(show(state))
    return state, shown, attentions


def _run_drawn(run: Callable, turn: int, state: Any, drawn: Tensor) -> Any:
    return run_if(turn < drawn, lambda state: run(state)[0], state)


def loop(config: AlbertConfig, apply: Callable, state: Any, draw: Draw | None, drawn: Tensor) -> Any:
    """Runs the plan with a graph loop for each segment; arguments as of `list_steps`. Gives the last state."""
    for place, (cycle, segment) in enumerate(zip(cycles(config, apply), segments(config))):
        is_drawn = draw is not None and place == draw.place
        state = repeat(cycle, segment.repeats, state, drawn if is_drawn else None)
    return state


def solve(
    config: AlbertConfig, apply: Callable, state: Any, equilibrium: Equilibrium, rows: RectangleRows
) -> tuple[Any, dict[str, Tensor]]:
    """Runs the segment that repeats to its fixed point, those around it once; also gives residual and steps by row."""
    solved, place = dict[str, Tensor](), repeated_segment(config)
    for number, cycle in enumerate(cycles(config, apply)):
        if number != place:
            state = cycle(0, state)
            continue
        solution = equilibrium.solve(functools.partial(cycle, 0), state, rows)
        state = ops.cast(solution.state, state.dtype)
        solved = {"residual": solution.residual, "steps": solution.steps}
    return state, solved

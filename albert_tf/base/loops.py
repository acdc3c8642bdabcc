"""Differentiable loops and conditions in a graph, on every backend."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor


def repeat(
    cycle: Callable, times: int, state: Any, drawn: Tensor | None = None, goes_on: Callable | None = None
) -> Any:
    """Applies cycle(i, state) for i = 0 .. times - 1 as one differentiable loop in the graph.

    Args:
        cycle: returns the next state, from the number i, an int or a scalar tensor, and the state.
        times: number of iterations.
        state: a tensor, or tensors in tuples, of constant shapes.
        drawn: an int32 scalar of at most `times` that replaces it.
        goes_on: returns whether the loop continues, from the state. There is no gradient then.
    """
    if times == 1:
        return cycle(0, state)
    if keras.backend.backend() == "jax":
        # lax.while_loop has no reverse gradient; fori_loop with a fixed count has.
        run = cycle if drawn is None else lambda i, state: run_if(i < drawn, lambda state: cycle(i, state), state)
        return ops.fori_loop(0, times, run, state)
    end = times if drawn is None else drawn

    def is_left(i: Tensor, state: Any) -> Tensor:
        is_open = True if goes_on is None else goes_on(state)
        return i < end if is_open is True else ops.logical_and(i < end, is_open)

    # XLA needs the bound to size what the backward pass stores.
    most = times if goes_on is None else None
    return ops.while_loop(is_left, lambda i, state: (i + 1, cycle(i, state)), (0, state), maximum_iterations=most)[1]


def run_if(condition: Tensor, step: Callable, state: Any) -> Any:
    """Returns step(state) if the scalar condition holds, else the state itself, at no cost."""
    return ops.cond(condition, lambda: step(state), lambda: state)

"""Differentiable loops and conditions in graphs of every backend."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor


def repeat(
    cycle: Callable, times: int, state: Any, drawn: Tensor | None = None, goes_on: Callable | None = None
) -> Any:
    """Applies state = cycle(i, state) for i = 0 .. times - 1, as a differentiable loop.

    Args:
        cycle: a function of i (an int or a scalar tensor) and the state.
        times: number of iterations.
        state: tensors of constant shapes, alone or in tuples.
        drawn: int32 scalar that replaces `times`; at most `times`.
        goes_on: takes the state and returns whether to continue. The loop then has no gradients. Under JAX, it is
            ignored.
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
    """Returns step(state) if the condition holds, else `state`."""
    return ops.cond(condition, lambda: step(state), lambda: state)

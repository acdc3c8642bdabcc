"""Ways of applying blocks over depth; all give the same numbers."""

import keras
from keras import ops

WALKS = ("unrolled", "loop", "recompute")


def repeat(step, times: int, hidden):
    """step(i, hidden) applied for i = 0 .. times - 1 as one loop in the graph, differentiable on every backend."""
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


def recompute(function):
    """`function` that keeps no intermediate for the backward pass and computes them a second time instead."""
    return keras.remat(function)

"""Finds fixed points z = f(z) of functions of states [tokens, width] (arXiv:1909.01377).

Each row, such as one text's tokens, is solved alone and stays fixed once converged. So its solution does not depend on
other rows.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import keras
from keras import ops

from albert_tf.base import Tensor

# Elsewhere there is no gradient of a fixed point.
if keras.backend.backend() == "tensorflow":
    import tensorflow as tf

Function = Callable[[Tensor], Tensor]

# Walker and Ni 2011: number of iterates that are mixed, fraction of each move f(z) - z that is taken, and ridge of the
# mixing weights, relative to the mean squared move.
MEMORY, BETA, RIDGE = 5, 1.0, 1e-4
_TINY = 1e-30


class RowSums(Protocol):
    """Defines which tokens form a row."""

    def sum(self, values: Tensor) -> Tensor:
        """Sums [..., tokens] over the tokens of each row: [..., rows]."""

    def spread(self, values: Tensor) -> Tensor:
        """Copies each row's value to its tokens: [rows] to [tokens]."""


class Solver(NamedTuple):
    """Settings of the fixed-point iteration.

    Attributes:
        kind: "fixed_point" takes f(z) as the next z; "anderson" mixes the last five iterates.
        tolerance: a row has converged when |f(z) - z| / |z| is below it; 0 runs all `max_steps` evaluations and returns
            the last f(z).
    """

    kind: str = "fixed_point"
    tolerance: float = 1e-3
    max_steps: int = 30


class Solution(NamedTuple):
    """The result of a solver.

    Attributes:
        state: float32 [tokens, width]: each row's iterate with the least residual; with tolerance 0, the last iterate.
        residual: float32 [rows]: |f(z) - z| / |z| of that iterate (with tolerance 0, of the one before); infinite if
            no residual was finite.
        steps: int32 [rows]: number of evaluations until the row converged, or `max_steps`.
    """

    state: Tensor
    residual: Tensor
    steps: Tensor


def solve(function: Function, start: Tensor, rows: RowSums, solver: Solver) -> Solution:
    """Solves z = f(z) from `start`, [tokens, width]; for gradients, call `implicit` or `phantom` afterwards.

    `function` must not mix rows.

    >>> import numpy as np
    >>> from albert_tf import AlbertConfig
    >>> from albert_tf.layers.padded import PaddedRows
    >>> rows = PaddedRows(AlbertConfig(), {"input_ids": np.ones((1, 1))}, None, "float32")
    >>> solution = solve(lambda z: 0.5 * z + 1.0, np.zeros((1, 3), "float32"), rows, Solver("anderson", 1e-5))
    >>> np.round(solution.state, 4).tolist(), int(solution.steps[0])
    ([[2.0, 2.0, 2.0]], 5)
    """
    start = ops.stop_gradient(ops.cast(start, "float32"))
    nothing = rows.sum(ops.zeros_like(start[:, 0]))
    solution = Solution(start, nothing + float("inf"), ops.cast(nothing, "int32"))
    history = _History(start) if solver.kind == "anderson" else None

    def is_open(residual: Tensor) -> Tensor:
        return ops.logical_not(residual < solver.tolerance)

    def goes_on(step: Tensor, state: Tensor, solution: Solution, past: tuple) -> Tensor:
        return ops.logical_and(step < solver.max_steps, ops.any(is_open(solution.residual)))

    def evaluate(step: Tensor, state: Tensor, solution: Solution, past: tuple) -> tuple:
        after = ops.cast(function(state), "float32")
        move = after - state
        residual = norm(move, rows) / ops.maximum(norm(state, rows), _TINY)
        residual = ops.where(ops.isfinite(residual), residual, float("inf"))
        if solver.tolerance == 0:
            solution = Solution(after, residual, ops.ones_like(solution.steps) * (step + 1))
        else:
            solution = _better(solution, state, residual, is_open(solution.residual), rows)
        if history is None:
            return step + 1, after, solution, past
        state, past = history.mix(step, state, move, past, rows)
        return step + 1, state, solution, past

    first = (ops.convert_to_tensor(0), start, solution, () if history is None else history.start)
    solution = ops.while_loop(goes_on, evaluate, first, maximum_iterations=solver.max_steps)[2]
    return Solution(*map(ops.stop_gradient, solution))


def _better(before: Solution, state: Tensor, residual: Tensor, is_open: Tensor, rows: RowSums) -> Solution:
    is_better = ops.logical_and(is_open, residual < before.residual)
    return Solution(
        ops.where(rows.spread(is_better)[:, None], state, before.state),
        ops.where(is_better, residual, before.residual),
        before.steps + ops.cast(is_open, "int32"),
    )


class _History:
    # Anderson acceleration.
    def __init__(self, start: Tensor):
        nothing = ops.zeros((MEMORY, 1, 1)) * start
        self.start = (nothing, nothing)

    def mix(self, step: Tensor, state: Tensor, move: Tensor, past: tuple, rows: RowSums) -> tuple[Tensor, tuple]:
        # The next state is sum_i alpha_i (z_i + BETA (f(z_i) - z_i)). In each row the alpha_i sum to 1 and minimize
        # |sum_i alpha_i (f(z_i) - z_i)|^2 + RIDGE mean_i |f(z_i) - z_i|^2 |alpha|^2 (Walker and Ni 2011, eq. 2.2; the
        # scale of the ridge is that of Scieur et al. 2016).
        states, moves = (ops.concatenate([kept[1:], new[None]]) for kept, new in zip(past, (state, move)))
        is_made = ops.arange(MEMORY) >= MEMORY - 1 - step
        alpha = self._weights(rows.sum(ops.einsum("itw,jtw->ijt", moves, moves)), ops.cast(is_made, "float32"))
        weights = ops.stack([rows.spread(alpha[:, i]) for i in range(MEMORY)])[:, :, None]
        return ops.sum(weights * (states + BETA * moves), axis=0), (states, moves)

    def _weights(self, products: Tensor, is_made: Tensor) -> Tensor:
        gram, unit = ops.transpose(products, (2, 0, 1)), ops.eye(MEMORY)
        scale = ops.trace(gram, axis1=1, axis2=2) / ops.sum(is_made)
        gram = gram / ops.maximum(scale, _TINY)[:, None, None]
        # TensorFlow's solver raises an error for non-finite values; only their row may fail.
        gram = ops.where(ops.isfinite(gram), gram, 0.0) * is_made * is_made[:, None] + RIDGE * unit
        right = ops.ones_like(scale)[:, None] * is_made
        alpha = ops.solve(gram, right[:, :, None])[:, :, 0]
        return alpha / ops.sum(alpha, axis=1, keepdims=True)


def norm(state: Tensor, rows: RowSums) -> Tensor:
    """Returns each row's Euclidean norm, float32 [rows]."""
    return ops.sqrt(rows.sum(ops.sum(ops.square(ops.cast(state, "float32")), axis=-1)))


def phantom(function: Function, state: Tensor, steps: int, damping: float = 1.0) -> Tensor:
    """Returns `state` with the gradient of `steps` further updates z + damping (f(z) - z) (Geng et al. 2021)."""
    # With damping 1, the gradient is the first terms of (I + J + J^2 + ...) df, where J = df/dz. The full sum is the
    # implicit gradient.
    moved = state
    for _ in range(steps):
        moved = moved + damping * (ops.cast(function(moved), "float32") - moved)
    return _with_gradient_of(state, moved)


def implicit(function: Function, state: Tensor, rows: RowSums, solver: Solver) -> Tensor:
    """Returns the fixed point `state` with its exact gradient, by the implicit function theorem."""
    # For an upstream gradient v, the solver solves g = J^T g + v, where J = df/dz; g is then backpropagated through one
    # evaluation of f.
    after = ops.cast(function(state), "float32")

    @tf.custom_gradient
    def hook(after: Tensor) -> tuple[Tensor, Function]:
        def solved(upstream: Tensor) -> Tensor:
            with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
                tape.watch(state)
                value = ops.cast(function(state), "float32")
            return solve(lambda vector: tape.gradient(value, state, vector) + upstream, upstream, rows, solver).state

        return tf.identity(after), solved

    return _with_gradient_of(state, hook(after))


def _with_gradient_of(value: Tensor, other: Tensor) -> Tensor:
    @tf.custom_gradient
    def hook(value: Tensor, other: Tensor) -> tuple[Tensor, Callable]:
        return tf.identity(value), lambda upstream: (None, upstream)

    return hook(value, other)

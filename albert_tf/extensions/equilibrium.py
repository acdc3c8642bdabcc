"""Runs the repeated blocks of a plan to their fixed point instead of a fixed number of times.

Source: arXiv:1909.01377. The repeated blocks compute f(z) = blocks(z + gate * x), where x is their input and also the
initial z. With gate 0, tolerance 0 and as many steps as repeats, the result equals that without this extension. All
steps share one dropout mask.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import plain
from albert_tf.config.extension import GATE, Extension, RowCost, Weight, WeightLayer
from albert_tf.config.other_depths import repeated_run
from albert_tf.config.registry import Weights
from albert_tf.layers.depth import DepthLoop, Runner, Segment
from tfrecords.base.errors import UserError

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


@dataclasses.dataclass(frozen=True)
class Equilibrium(Extension):
    """Runs blocks to a fixed point. Every step adds their input, weighted by a gate [hidden_size].

    Attributes:
        equilibrium_solver: "none", "fixed_point" or "anderson".
        equilibrium_tolerance: a row has converged when a step's relative change is below this; 0 runs all steps.
        equilibrium_max_steps: maximal number of steps.
        equilibrium_gradient: "phantom", the gradient of a few further steps, or "implicit", the fixed point's exact
            gradient.
        equilibrium_phantom_steps: number of phantom steps; for "fixed_point" with tolerance 0 they are the last of
            `equilibrium_max_steps`.
        equilibrium_damping: fraction of a phantom step that is taken.
        gate_init: the gate's initial value; at 0 the input serves only as the initial state.
    """

    # The outermost runner, because it overrides `repeat`.
    name, order, walk, begins_plain, for_litert = "equilibrium", 9, "equilibrium", True, False
    packs, outputs = False, ("residual", "steps")
    no_exits = "exits are between steps, and the blocks stop by themselves"
    choices = {
        "equilibrium_solver": ("none", "fixed_point", "anderson"),
        "equilibrium_gradient": ("phantom", "implicit"),
    }
    limits = GATE | {
        "equilibrium_tolerance": ("below 1", lambda value: value < 1),
        "equilibrium_damping": ("above 0 and at most 1", lambda value: 0 < value <= 1),
    }
    equilibrium_solver: str = "none"
    equilibrium_tolerance: float = 1e-3
    equilibrium_max_steps: int = 30
    equilibrium_gradient: str = "phantom"
    equilibrium_phantom_steps: int = 5
    equilibrium_damping: float = 1.0
    gate_init: float = 0.0

    @property
    def solver(self) -> Solver:
        return Solver(self.equilibrium_solver, self.equilibrium_tolerance, self.equilibrium_max_steps)

    def check(self, config: Any) -> None:
        if keras.backend.backend() != "tensorflow":
            raise UserError("a fixed point's gradient is TensorFlow's; leave KERAS_BACKEND at tensorflow")
        is_fixed = self.equilibrium_solver == "fixed_point" and self.equilibrium_tolerance == 0
        if is_fixed and self.equilibrium_gradient == "phantom" and self.equilibrium_damping != 1:
            raise UserError(
                "with equilibrium_tolerance 0 the phantom steps are the last steps; equilibrium_damping is 1"
            )
        repeated_run(config, "a fixed point is of blocks that run again and again")

    def conflicts(self) -> dict[str, str]:
        names = ("step_signal", "depth_lora_rank", "halting", "random_depth_min", "untie_biases")
        names += ("global_attention_every",)
        return dict.fromkeys(names, "a fixed point is of one function, the same at every step")

    def check_outputs(self, hidden_states: bool, attentions: bool) -> None:
        raise plain(UserError("a walk to an equilibrium has no hidden states and no attentions on its way"))

    def metrics(self) -> tuple[str, ...]:
        names = ("equilibrium_residual", "equilibrium_steps", "equilibrium_unconverged")
        return names if self.equilibrium_tolerance else names[:2]

    def weight_layers(self, config: Any, owner: str, steps: tuple[int, ...]) -> list[WeightLayer]:
        gate = Weight((config.hidden_size,), keras.initializers.Constant(self.gate_init), autocast=False)
        own = WeightLayer("equilibrium", "depth_injection", "depth_layers/equilibrium", {"gate": gate})
        return [own] if owner == "encoder" else []

    def row_cost(self, config: Any, targets: int, cost: RowCost) -> RowCost:
        _, _, run, fixed = repeated_run(config)
        stored = self.equilibrium_phantom_steps if self.equilibrium_gradient == "phantom" else 2
        steps = fixed + len(run.steps) * self.equilibrium_max_steps
        return cost._replace(steps=steps, stored_steps=stored)

    def around(self, runner: Runner, weights: Weights) -> Runner:
        return SolvedRunner(runner, self, weights)

    def injected(self, gate: Tensor, blocks: Function, x: Tensor) -> Function:
        injected = gate * ops.cast(x, "float32")
        return lambda state: blocks(ops.cast(state + injected, x.dtype))

    def solution(self, function: Function, x: Tensor, rows: RowSums) -> Solution:
        solver, is_phantom = self.solver, self.equilibrium_gradient == "phantom"
        if is_phantom and solver == Solver("fixed_point", 0, solver.max_steps):
            return self._fixed_number(function, x, rows)
        solution = solve(function, x, rows, solver)
        if is_phantom:
            state = phantom(function, solution.state, self.equilibrium_phantom_steps, self.equilibrium_damping)
        else:
            state = implicit(function, solution.state, rows, solver)
        return solution._replace(state=state)

    def _fixed_number(self, function: Function, x: Tensor, rows: RowSums) -> Solution:
        total = self.equilibrium_max_steps
        with_gradient = min(self.equilibrium_phantom_steps, total)
        state = ops.cast(x, "float32")
        if with_gradient < total:
            state = solve(function, x, rows, Solver("fixed_point", 0, total - with_gradient)).state
        for _ in range(with_gradient):
            before, state = state, ops.cast(function(state), "float32")
        residual = ops.stop_gradient(norm(state - before, rows) / ops.maximum(norm(before, rows), 1e-30))
        return Solution(state, residual, ops.cast(ops.zeros_like(residual), "int32") + total)


class SolvedRunner(Runner):
    """Runs the repeated steps to their fixed point; the inner runner's state must be a tensor."""

    solved: Solution

    def __init__(self, inner: Runner, extension: Equilibrium, weights: Weights):
        super().__init__(inner)
        self.extension, self.gate = extension, weights["gate"]

    def repeat(self, place: int, segment: Segment, cycle: Callable, state: Tensor, loop: DepthLoop) -> Tensor:
        if place != repeated_run(self.config).place:
            return self.inner.repeat(place, segment, cycle, state, loop)
        function = self.extension.injected(self.gate, functools.partial(cycle, 0), state)
        self.solved = self.solution(function, state, loop)
        return ops.cast(self.solved.state, state.dtype)

    def solution(self, function: Function, state: Tensor, loop: DepthLoop) -> Solution:
        return self.extension.solution(function, state, self.rows)

    def report(self, state: Tensor) -> tuple[dict[str, Tensor], list[Tensor], dict[str, Tensor]]:
        outputs, losses, values = self.inner.report(state)
        residual, steps = self.solved.residual, self.solved.steps
        is_open = ops.logical_not(residual < self.extension.equilibrium_tolerance)
        own = (residual, ops.cast(steps, "float32"), ops.cast(is_open, "float32"))
        outputs = outputs | {"residual": self.rows.restore(residual), "steps": self.rows.restore(steps)}
        return outputs, losses, values | dict(zip(self.extension.metrics(), own))

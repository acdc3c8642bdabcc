"""Runs the repeated blocks of a plan to their fixed point instead of a fixed number of times.

Source: arXiv:1909.01377. The repeated blocks compute f(z) = blocks(z + gate * x), where x is their input and also the
initial z. With gate 0, tolerance 0 and as many steps as repeats, the result equals that without this extension. All
steps share one dropout mask.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import plain
from albert_tf.config.extension import GATE, Extension, RowCost, Weight, WeightLayer
from albert_tf.config.other_depths import repeated_run
from albert_tf.config.registry import Weights
from albert_tf.extensions.fixed_point import Function, RowSums, Solution, Solver, implicit, norm, phantom, solve
from albert_tf.layers.depth import DepthLoop, Runner, Segment
from tfrecords.base.errors import UserError


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

"""The blocks that a plan repeats are run to their fixed point, in place of the plan's number of times.

Bai et al. 2019 (arXiv:1909.01377). The state z of the repeated blocks becomes f(z) = blocks(z + gate * x), where x is
what comes in, so that the fixed point knows its input. It begins at x: with a closed gate, tolerance 0 and as many
steps as the plan has repeats, it is the plan itself. Dropout draws one mask for all steps: f is one function.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from albert_tf.extension import Extension, Holder, Weight, Weights, extension_of
from albert_tf.extensions.fixed_point import (
    Rows,
    Solution,
    Solver,
    implicit,
    norm,
    phantom,
    solve,
    spectral_radius,
)
from albert_tf.extensions.pullback import Function
from albert_tf.layers import Tensor
from albert_tf.layers.depth import Segment, segments
from albert_tf.layers.depth_loop import DepthLoop, Runner
from tfrecords.base.errors import UserError


@dataclasses.dataclass(frozen=True)
class Equilibrium(Extension):
    """Seeks the fixed point of blocks. A gate [hidden_size] weighs their input at every step."""

    # The outermost runner, as it repeats a segment in its own way.
    name, order, walk = "equilibrium", 9, "equilibrium"
    outputs = ("residual", "steps")
    equilibrium_solver: str = "none"
    equilibrium_tolerance: float = 1e-3
    equilibrium_max_steps: int = 30
    equilibrium_gradient: str = "phantom"
    equilibrium_phantom_steps: int = 5
    equilibrium_damping: float = 1.0
    gate_init: float = 0.0

    @property
    def solver(self) -> Solver:
        """Returns how the fixed point is sought."""
        return Solver(self.equilibrium_solver, self.equilibrium_tolerance, self.equilibrium_max_steps)

    def check(self, config: Any) -> None:
        repeated_segment(config)

    def check_outputs(self, hidden_states: bool, attentions: bool) -> None:
        raise UserError("a walk to an equilibrium has no hidden states and no attentions on its way")

    def check_early_exit(self) -> None:
        raise UserError("early exit leaves between steps, and a walk to an equilibrium stops by itself; leave it out")

    def metrics(self) -> tuple[str, ...]:
        names = ("equilibrium_residual", "equilibrium_steps", "equilibrium_unconverged")
        return names if self.equilibrium_tolerance else names[:2]

    def holders(self, config: Any, owner: str, steps: tuple[int, ...]) -> list[Holder]:
        gate = Weight((config.hidden_size,), keras.initializers.Constant(self.gate_init), autocast=False)
        own = Holder("equilibrium", "depth_injection", "depth_layers/equilibrium", {"gate": gate})
        return [own] if owner == "encoder" else []

    def around(self, runner: Runner, weights: Weights) -> Runner:
        return SolvedRunner(runner, self, weights)

    def injected(self, gate: Tensor, blocks: Function, x: Tensor) -> Function:
        """Returns f(z) = blocks(z + gate * x), of float32 z [tokens, hidden_size]; the sum is float32."""
        injected = gate * ops.cast(x, "float32")
        return lambda state: blocks(ops.cast(state + injected, x.dtype))

    def solution(self, function: Function, x: Tensor, rows: Rows) -> Solution:
        """Runs a function to its fixed point; the state has the gradient that the configuration asks for.

        Args:
            function: of float32 [tokens, hidden_size], to the same shape.
            x: what it begins with.
            rows: which tokens make a row, and which of them count.
        """
        solver, is_phantom = self.solver, self.equilibrium_gradient == "phantom"
        if is_phantom and solver == Solver("fixed_point", 0, solver.max_steps):
            return self._fixed_number(function, x, rows)
        solution = solve(function, x, rows, solver)
        if is_phantom:
            state = phantom(function, solution.state, self.equilibrium_phantom_steps, self.equilibrium_damping)
        else:
            state = implicit(function, solution.state, rows, solver)
        return solution._replace(state=state)

    def _fixed_number(self, function: Function, x: Tensor, rows: Rows) -> Solution:
        """As many steps as `max_steps` says, the last ones with a gradient: truncated backpropagation through time."""
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
    """Runs the steps that repeat to their fixed point; the state is that of the inner runner, which must be a tensor.

    Attributes:
        solved: the fixed point, once these steps have run.
    """

    solved: Solution

    def __init__(self, inner: Runner, extension: Equilibrium, weights: Weights):
        super().__init__(inner)
        self.extension, self.gate = extension, weights["gate"]

    def repeat(self, place: int, segment: Segment, cycle: Callable, state: Tensor, loop: DepthLoop) -> Tensor:
        if place != repeated_segment(self.config):
            return self.inner.repeat(place, segment, cycle, state, loop)
        function = self.extension.injected(self.gate, functools.partial(cycle, 0), state)
        self.solved = self.solution(function, state, loop)
        return ops.cast(self.solved.state, state.dtype)

    def solution(self, function: Function, state: Tensor, loop: DepthLoop) -> Solution:
        """Returns the fixed point of a function that begins with a state."""
        return self.extension.solution(function, state, self.rows)

    def report(self, state: Tensor) -> tuple[dict[str, Tensor], list[Tensor], dict[str, Tensor]]:
        outputs, losses, values = self.inner.report(state)
        residual, steps = self.solved.residual, self.solved.steps
        is_open = ops.logical_not(residual < self.extension.equilibrium_tolerance)
        own = (residual, ops.cast(steps, "float32"), ops.cast(is_open, "float32"))
        outputs = outputs | {"residual": self.rows.restore(residual), "steps": self.rows.restore(steps)}
        return outputs, losses, values | dict(zip(self.extension.metrics(), own))


def repeated_segment(config: Any) -> int:
    """Returns the place among `depth.segments` of the one whose fixed point is sought: that which repeats.

    Raises:
        UserError: there is none, or more than one.
    """
    runs = segments(config)
    repeated = [place for place, run in enumerate(runs) if run.repeats > 1]
    if len(runs) == 1:
        return 0
    if len(repeated) != 1:
        raise UserError(
            f"a fixed point is of blocks that run again and again; this plan over {config.num_steps} steps"
            f" (sharing '{config.sharing}') has {len(repeated) or 'no'} such runs of blocks, and must have one"
        )
    return repeated[0]


def recurrence(encoder: Any, features: Any) -> tuple[Function, Tensor, Rows]:
    """Returns what a fixed point is sought of, for a batch, whatever the walk.

    Args:
        encoder: an AlbertEncoder.
        features: those of its `call`.

    Returns:
        The function of a state [tokens, hidden_size] that runs the plan's repeated blocks once, with their input
        injected where the walk is to an equilibrium; the state that they begin with, [tokens, hidden_size]; and
        which of the tokens make a row.

    Raises:
        UserError: the plan has no single run of blocks that repeats.
    """
    place, (_, runner, state) = repeated_segment(encoder.config), encoder.begin(features)
    *before, (_, blocks) = DepthLoop().cycles(runner)[: place + 1]
    for _, cycle in before:
        state = cycle(0, state)
    function: Function = functools.partial(blocks, 0)
    if (extension := extension_of(encoder.config, "equilibrium")) is not None:
        gate = encoder.extension_weights["equilibrium"]["gate"]
        function = extension.injected(gate, function, state)
    return function, state, runner.rows


def radius(encoder: Any, features: dict[str, Tensor]) -> float:
    """Estimates the spectral radius of an encoder's repeated blocks at their fixed point; the largest of the rows.

    Below 1 they contract there; above 1 the implicit gradient's series does not converge.
    """
    function, start, rows = recurrence(encoder, features)
    state = solve(function, start, rows, extension_of(encoder.config, "equilibrium").solver).state
    return float(ops.convert_to_numpy(ops.max(spectral_radius(function, state, rows))))

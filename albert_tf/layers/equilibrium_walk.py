"""The equilibrium walk over depth: the blocks that a plan repeats are run to their fixed point.

Bai et al. 2019 (arXiv:1909.01377). The state z of the repeated blocks becomes f(z) = blocks(z + gate * x), where x is
what comes in, so that the fixed point knows its input. It begins at x: with a closed gate, tolerance 0 and as many
steps as the plan has repeats, it is the plan itself. Dropout draws one mask for all steps: f is one function.
"""

from typing import Any

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers import Tensor
from albert_tf.layers.depth import segments
from albert_tf.layers.equilibrium import (
    RectangleRows,
    Solution,
    Solver,
    implicit,
    norm,
    phantom,
    solve,
    spectral_radius,
)
from albert_tf.layers.measured import MeasuredMean
from albert_tf.layers.pullback import Function
from tfrecords.base.errors import UserError

EQUILIBRIUM = "equilibrium"


def settled(config: AlbertConfig, walk: str) -> tuple[AlbertConfig, str]:
    """Makes configuration and walk say the same: `equilibrium_solver` is "none" where the walk is another.

    >>> config, walk = settled(AlbertConfig.named("albert_tiny"), "equilibrium")
    >>> config.equilibrium_solver, settled(config, "unrolled")[1]
    ('fixed_point', 'equilibrium')

    Raises:
        UserError: the walk is another on purpose, or the plan has no blocks that repeat.
    """
    if walk == EQUILIBRIUM and config.equilibrium_solver == "none":
        config = config.replace(equilibrium_solver="fixed_point")
    if config.equilibrium_solver == "none":
        return config, walk
    if walk not in ("unrolled", EQUILIBRIUM):
        raise UserError(
            f"walk '{walk}' runs the plan's steps, equilibrium_solver '{config.equilibrium_solver}' seeks their fixed"
            " point; leave out the walk, or set the solver to 'none'"
        )
    repeated_segment(config)
    return config, EQUILIBRIUM


def repeated_segment(config: AlbertConfig) -> int:
    """Gives the place among `depth.segments` of the one whose fixed point is sought: that which repeats.

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


def radius(encoder: Any, features: dict[str, Tensor]) -> float:
    """Estimates the spectral radius of an AlbertEncoder's repeated blocks where they end; the largest of the rows.

    Below 1 they contract there; above 1 the implicit gradient's series does not converge.
    """
    function, start, rows = encoder.recurrence(features)
    state = solve(function, start, rows, encoder.equilibrium.solver).state
    return float(ops.convert_to_numpy(ops.max(spectral_radius(function, state, rows))))


class Equilibrium(keras.layers.Layer):
    """Seeks the fixed point of blocks and holds the gate [hidden_size] by which their input comes into every step.

    Attributes:
        solver: how, as the configuration says.
        means: metrics over the rows of training or of an evaluation: the relative residual, the evaluations of the
            blocks, and, where there is a tolerance, the part of the rows that did not reach it.
    """

    def __init__(self, config: AlbertConfig, **kwargs: Any):
        super().__init__(**kwargs)
        self.config = config
        self.solver = Solver(config.equilibrium_solver, config.equilibrium_tolerance, config.equilibrium_max_steps)
        names = ["equilibrium_residual", "equilibrium_steps"]
        names += ["equilibrium_unconverged"] if self.solver.tolerance else []
        self.means = [MeasuredMean(name=name) for name in names]
        self._unmeasured: tuple[Tensor, Tensor] | None = None

    def build(self, input_shape: Any = None) -> None:
        initializer = keras.initializers.Constant(self.config.gate_init)
        shape = (self.config.hidden_size,)
        self.gate = self.add_weight(name="gate", shape=shape, initializer=initializer, autocast=False)

    def recurrence(self, blocks: Function, x: Tensor) -> Function:
        """Gives f(z) = blocks(z + gate * x), of float32 z [tokens, hidden_size]; the sum is float32."""
        injected = self.gate * ops.cast(x, "float32")
        return lambda state: blocks(ops.cast(state + injected, x.dtype))

    def solve(self, blocks: Function, x: Tensor, rows: RectangleRows) -> Solution:
        """Runs blocks to their fixed point.

        Args:
            blocks: from [tokens, hidden_size] to the same shape and dtype.
            x: what comes in.
            rows: which tokens make a row, and which of them count.

        Returns:
            The solution, whose state has the gradient that the configuration asks for.
        """
        config, function = self.config, self.recurrence(blocks, x)
        if config.equilibrium_gradient == "phantom" and self.solver == Solver("fixed_point", 0, self.solver.max_steps):
            solution = self._fixed_number(function, x, rows)
        else:
            solution = solve(function, x, rows, self.solver)
            if config.equilibrium_gradient == "implicit":
                state = implicit(function, solution.state, rows, self.solver)
            else:
                state = phantom(function, solution.state, config.equilibrium_phantom_steps, config.equilibrium_damping)
            solution = solution._replace(state=state)
        self._unmeasured = (solution.residual, solution.steps)
        return solution

    def _fixed_number(self, function: Function, x: Tensor, rows: RectangleRows) -> Solution:
        """As many steps as `max_steps` says, the last ones with a gradient: truncated backpropagation through time."""
        total = self.solver.max_steps
        kept = min(self.config.equilibrium_phantom_steps, total)
        state = ops.cast(x, "float32")
        if kept < total:
            state = solve(function, x, rows, Solver("fixed_point", 0, total - kept)).state
        for _ in range(kept):
            before, state = state, ops.cast(function(state), "float32")
        residual = ops.stop_gradient(norm(state - before, rows) / ops.maximum(norm(before, rows), 1e-30))
        return Solution(state, residual, ops.cast(ops.zeros_like(residual), "int32") + total)

    def measure(self) -> None:
        """Adds the last call's rows to the metrics; to be called in the same graph or trace."""
        if self._unmeasured is None:
            return
        (residual, steps), self._unmeasured = self._unmeasured, None
        is_open = ops.logical_not(residual < self.solver.tolerance)
        for mean, values in zip(self.means, (residual, ops.cast(steps, "float32"), ops.cast(is_open, "float32"))):
            mean.update_state(values)

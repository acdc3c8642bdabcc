from collections.abc import Callable
from typing import Any

from albert_tf.base import Tensor
from albert_tf.extensions.equilibrium import Solution, SolvedRunner, Solver, solve
from albert_tf.layers.depth import DepthLoop, Runner
from serving.inference.kernels import ExportedExtension


class ExportedEquilibrium(ExportedExtension):
    """Equilibrium that finds each token's row number once, not in each iteration."""

    has_one_row = False

    def rows(self, rows: Any, features: dict[str, Any]) -> Any:
        rows.row_of_tokens = rows.find_rows()
        return rows

    def around(self, runner: Runner) -> Runner:
        return _ExportedSolution(runner, self.extension, self.weights)


class _ExportedSolution(SolvedRunner):
    def solution(self, function: Callable, state: Tensor, loop: DepthLoop) -> Solution:
        solver = self.extension.solver
        # Calibration lists steps, and reads all that there may be.
        solver = solver if loop.kind == "loop" else Solver("fixed_point", 0, solver.max_steps)
        return solve(function, state, self.rows, solver)

    def report(self, state: Tensor) -> tuple[dict, list, dict]:
        outputs, losses, values = self.inner.report(state)
        solved = {name: self.rows.restore(getattr(self.solved, name)) for name in ("residual", "steps")}
        return outputs | solved, losses, values

"""Runs repeated blocks beyond their trained depth."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import keras
import numpy as np
from matplotlib.figure import Figure

from albert_tf.analysis import distances
from albert_tf.analysis.distances import load_compared
from albert_tf.checkpoints.variables import encoder_of
from albert_tf.choices import LONGEST_PERIOD
from albert_tf.extensions.equilibrium import recurrence, repeated_segment
from albert_tf.extensions.fixed_point import SOLVERS, Solver, norm, solve, spectral_radius
from albert_tf.layers.depth import segments
from albert_tf.layers.encoder import AlbertEncoder
from tfrecords.base.files import replacing
from tfrecords.base.plotting import fonts_for, legend_beside

if keras.backend.backend() == "jax":
    import jax
else:
    import tensorflow as tf

if TYPE_CHECKING:
    from albert_tf.analysis.equilibrium import EquilibriumSettings

# Thresholds of the verdict. In a cycle, a state returns to within this fraction of a step's distance. A residual still
# falls if a quarter of the steps reduce it to this fraction. A state diverges if half the steps multiply its length so.
_RETURNS, _FALLS, _GROWS = 0.25, 0.8, 2.0


class BlockRun(NamedTuple):
    """One application of the repeated blocks f to a state z; values are medians over rows.

    Attributes:
        residual: |f(z) - z| / |z|.
        cosine: cosine between f(z) - z in this run and in the previous one.
        length: |f(z)| / |x|, where x is the first input.
    """

    step: int
    residual: float
    cosine: float
    length: float


class Recurrence(NamedTuple):
    """The behaviour of a model's repeated blocks on a batch.

    Attributes:
        depth: number of runs in training; for an equilibrium model, the maximum.
        returns: median relative distances between final states that are 1, 2, ... runs apart.
        evaluations: maps each solver to the block evaluations of each row that converged.
        radius: the largest spectral radius of a row's Jacobian df/dz, at the solution of least residual.
        tolerance: the residual at which a row has converged.
    """

    depth: int
    runs: list[BlockRun]
    returns: list[float]
    evaluations: dict[str, list[int]]
    rows: int
    radius: float
    radius_residual: float
    tolerance: float

    def verdict(self) -> str:
        steps, last = len(self.runs), self.runs[-1]
        residuals = [run.residual for run in self.runs]
        late, later = (np.mean(residuals[-steps // 2 : -steps // 4]), np.mean(residuals[-steps // 4 :]))
        period = int(np.argmin(self.returns)) + 1
        if last.residual < self.tolerance:
            first = 1 + max((run.step for run in self.runs if not run.residual < self.tolerance), default=0)
            return (
                f"it is near a fixed point: a step moves the state by less than {self.tolerance:g} from step {first} on"
            )
        if not np.isfinite(last.residual) or last.length > _GROWS * self.runs[steps // 2].length:
            return f"it diverges: after {steps} steps the state is {last.length:.3g} times as long as at the start"
        if later < _FALLS * late:
            return f"it approaches a fixed point slowly: step {steps} still moves the state by {last.residual:.2g}"
        if period > 1 and self.returns[period - 1] < _RETURNS * self.returns[0]:
            return (
                f"it oscillates with period {period}: a step moves the state by {last.residual:.2g} of its length, and "
                f"after {period} steps it is back within {self.returns[period - 1]:.2g}"
            )
        return (
            f"it wanders: a step moves the state by {last.residual:.2g} of its length, without an end and without a "
            f"period of up to {LONGEST_PERIOD}"
        )


def recur(encoder: AlbertEncoder, features: dict, steps: int = 100, tolerance: float = 1e-3) -> Recurrence:
    """Runs an encoder's repeated blocks `steps` times and searches for their fixed point."""
    function, start, rows = recurrence(encoder, features)
    state = start = keras.ops.cast(start, "float32")
    function, first = _compiled(function), _array(norm(start, rows))
    runs, kept, before = [], [state], None
    for step in range(1, steps + 1):
        after = keras.ops.cast(function(state), "float32")
        move = after - state
        size = _array(norm(move, rows))
        cosine = np.nan
        if before is not None:
            inner = _array(rows.sum(keras.ops.sum(move * before[0], axis=-1)))
            cosine = np.median(inner / np.maximum(size * before[1], 1e-30))
        residual = np.median(size / np.maximum(_array(norm(state, rows)), 1e-30))
        runs.append(BlockRun(step, residual, cosine, np.median(_array(norm(after, rows)) / first)))
        state, before = after, (move, size)
        kept = [*kept[1 - 2 * LONGEST_PERIOD :], state]
    solutions = {kind: solve(function, start, rows, Solver(kind, tolerance, steps)) for kind in SOLVERS}
    best = min(solutions.values(), key=lambda solution: _array(solution.residual).max())
    whole = encoder.config.equilibrium_max_steps
    return Recurrence(
        depth=segments(encoder.config)[repeated_segment(encoder.config)].repeats
        if encoder.walk != "equilibrium"
        else whole,
        runs=runs,
        returns=[_distance(kept, period, rows) for period in range(1, LONGEST_PERIOD + 1)],
        evaluations={
            kind: _array(solution.steps)[_array(solution.residual) < tolerance].tolist()
            for kind, solution in solutions.items()
        },
        rows=len(first),
        radius=float(_array(spectral_radius(function, best.state, rows)).max()),
        radius_residual=float(_array(best.residual).max()),
        tolerance=tolerance,
    )


def _compiled(function):
    if keras.backend.backend() == "jax":
        return jax.jit(function)
    return tf.function(function, autograph=False)


def _array(tensor) -> np.ndarray:
    return keras.ops.convert_to_numpy(tensor)


def _distance(states: list, period: int, rows) -> float:
    pairs = list(zip(states, states[period:]))[-LONGEST_PERIOD:]
    return float(np.median([_array(norm(now - then, rows) / norm(now, rows)) for then, now in pairs]))


def report(name: str, found: Recurrence) -> str:
    """Returns the lines that the command prints for a model."""
    lines = [f"{name}: {found.rows} rows, trained depth {found.depth}"]
    shown = {1, 2, 3, 4, 6, 8, found.depth, *range(12, len(found.runs), 12), len(found.runs)}
    lines += [
        f"  step {run.step:3}  residual {run.residual:9.2e}  cosine with the step before {run.cosine:7.4f}"
        for run in found.runs
        if run.step in shown
    ]
    for kind, counts in found.evaluations.items():
        needs = f"{np.median(counts):.0f} evaluations (median)" if counts else f"not in {len(found.runs)} evaluations"
        lines.append(f"  {kind} to {found.tolerance:g}: {len(counts)} of {found.rows} rows, {needs}")
    lines.append(f"  spectral radius {found.radius:.3f} where the residual is least ({found.radius_residual:.1e})")
    return "\n".join([*lines, f"  {found.verdict()}"])


def write_csv(path: str | os.PathLike, recurrences: dict[str, Recurrence]) -> None:
    """Writes a CSV line for each model and run."""
    distances.write_csv(path, {name: found.runs for name, found in recurrences.items()}, ".6g")


def write_plot(path: str | os.PathLike, recurrences: dict[str, Recurrence]) -> None:
    """Plots residual and cosine over the runs as a PNG."""
    with fonts_for(recurrences):
        figure = Figure(figsize=(10, 4), layout="constrained")
        labels = ("residual |f(z) - z| / |z|", "cosine of a step and the one before")
        for axes, field, label in zip(figure.subplots(1, 2), ("residual", "cosine"), labels):
            for name, found in recurrences.items():
                values = [getattr(run, field) for run in found.runs]
                (line,) = axes.plot(range(1, len(values) + 1), values, label=name)
                if found.depth <= len(values):
                    axes.plot([found.depth], [values[found.depth - 1]], marker="o", color=line.get_color())
            axes.set(xlabel="run of the repeated blocks", ylabel=label)
            if field == "residual":
                axes.set(yscale="log")
            else:
                axes.set(ylim=(-1.05, 1.05))
        figure.suptitle("What the repeated blocks come to when they run on")
        legend_beside(figure, *axes.get_legend_handles_labels())
        with replacing(path) as temporary:
            figure.savefig(temporary, dpi=120)


def compare(settings: "EquilibriumSettings", models: Sequence[str], texts: Sequence[str], output_dir: Path) -> None:
    """Runs every model's blocks on the same texts; writes equilibrium.csv and equilibrium.png."""
    recurrences = {}
    for path in models:
        loaded = load_compared(settings, path)
        encoder = encoder_of(loaded.model)
        repeated_segment(encoder.config)
        longest = min(settings.max_seq_length, encoder.config.max_seq_length)
        features = loaded.preprocessor(longest)(texts)
        recurrences[path] = recur(encoder, features, settings.steps, settings.tolerance)
        print(report(path, recurrences[path]))
    write_csv(output_dir / "equilibrium.csv", recurrences)
    write_plot(output_dir / "equilibrium.png", recurrences)
    print(f"wrote {output_dir / 'equilibrium.csv'} and {output_dir / 'equilibrium.png'}")

from collections.abc import Mapping
from typing import Any

from albert_tf.analysis.cost import flops
from albert_tf.config import AlbertConfig
from albert_tf.extensions.equilibrium import repeated_segment
from albert_tf.layers.depth import Segment, segments
from albert_tf.permutation import objective as permutation

# Of the forward pass: itself, and a backward pass that is two such.
_TRAINING = 3


def inference_flops(config: AlbertConfig, length: int, result: Mapping[str, float]) -> float:
    """Counts the operations of the encoder's forward pass over a row of `length` tokens.

    For an equilibrium model, `result` has `equilibrium_steps`, the mean number of steps on held-out rows.

    >>> plain = AlbertConfig.named("albert_base_v2")
    >>> solved = plain.replace(equilibrium_solver="fixed_point")
    >>> inference_flops(plain, 128, {}) == inference_flops(solved, 128, {"equilibrium_steps": 12.0})
    True
    """
    fixed, step = _parts(config, length)
    steps = config.num_steps
    if config.equilibrium_solver != "none":
        run = _repeated_run(config)
        steps += (result["equilibrium_steps"] - run.repeats) * len(run.steps)
    return fixed + step * steps


def training_flops(
    config: AlbertConfig,
    length: int,
    rows: int,
    result: Mapping[str, float],
    settings: Mapping[str, Any] | None = None,
    predictions: int = 0,
) -> float:
    """Counts the operations of training on `rows` rows, as three forward passes of the encoder per row.

    In an equilibrium model, a solver step counts once and a phantom step three times. The query stream and
    memory of permutation models are added. `settings` has the keys of PretrainingSettings.
    """
    fixed, step = _parts(config, length)
    if config.equilibrium_solver == "none":
        settings, more = settings or {}, 0.0
        if settings.get("objective") == "permutation":
            more = permutation.forward_flops(config, length, predictions, settings)
        return rows * _TRAINING * (fixed + step * config.num_steps + more)
    run = _repeated_run(config)
    solved = result["equilibrium_steps"] * len(run.steps)
    with_gradient = config.num_steps + (config.equilibrium_phantom_steps - run.repeats) * len(run.steps)
    return rows * (_TRAINING * (fixed + step * with_gradient) + step * solved)


def _parts(config: AlbertConfig, length: int) -> tuple[float, float]:
    # Of the plan's steps: how many an equilibrium makes, its result says.
    work = flops(config.replace(equilibrium_solver="none"), length)
    fixed = work.projection + work.pooler
    return fixed, (work.total - fixed) / config.num_steps


def _repeated_run(config: AlbertConfig) -> Segment:
    return segments(config)[repeated_segment(config)]

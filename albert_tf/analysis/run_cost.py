"""What a run's training and its model's answers cost in floating-point operations."""

from collections.abc import Mapping
from typing import Any

from albert_tf.analysis.cost import flops
from albert_tf.config import AlbertConfig
from albert_tf.extensions.equilibrium import repeated_segment
from albert_tf.layers.depth import segments

# Of the forward pass: itself, and a backward pass that is two such.
_TRAINING = 3


def inference_flops(config: AlbertConfig, length: int, result: Mapping[str, float]) -> float:
    """Counts the forward pass of the encoder over a row of `length` tokens.

    An equilibrium counts the mean of the steps that it made on held-out rows, which `result` has as
    `equilibrium_steps`.

    >>> plain = AlbertConfig.named("albert_base_v2")
    >>> solved = plain.replace(equilibrium_solver="fixed_point")
    >>> inference_flops(plain, 128, {}) == inference_flops(solved, 128, {"equilibrium_steps": 12.0})
    True
    """
    fixed, step = _parts(config, length)
    return fixed + step * (config.num_steps + _extra_steps(config, result))


def training_flops(
    config: AlbertConfig,
    length: int,
    rows: int,
    result: Mapping[str, float],
    settings: Mapping[str, Any] | None = None,
    predictions: int = 0,
) -> float:
    """Counts training on so many rows: three forward passes of the encoder each.

    An equilibrium makes its steps forward only, and those that its phantom gradient is taken through besides. Of
    XLNet's permutations the stream of queries and the memory count, too.

    Args:
        config: of the encoder.
        length: tokens of a row.
        rows: over all updates.
        result: of the run.
        settings: of the training, by the names of PretrainingSettings; what they do not say has its default.
        predictions: targets a row; only of permutations it says something.
    """
    fixed, step = _parts(config, length)
    if config.equilibrium_solver == "none":
        streams = _streams(config, length, settings or {}, predictions)
        return rows * _TRAINING * (fixed + step * config.num_steps + streams)
    solved = result["equilibrium_steps"] * _repeated(config)
    others = config.num_steps - segments(config)[repeated_segment(config)].repeats * _repeated(config)
    with_gradient = others + config.equilibrium_phantom_steps * _repeated(config)
    return rows * (_TRAINING * (fixed + step * with_gradient) + step * solved)


def _streams(config: AlbertConfig, length: int, settings: Mapping[str, Any], predictions: int) -> float:
    """What queries and memory add to a forward pass of XLNet's training; 0 for other objectives.

    A query is a token more that nobody attends to; memory is what all attend to, as keys and values alone.
    """
    if settings.get("objective") != "permutation":
        return 0.0
    hidden, memory = config.hidden_size, settings.get("memory_length") or config.memory_length
    inner = (3 if config.feed_forward == "glu" else 2) * hidden * config.intermediate_size

    def scores(tokens: int, keys: int) -> int:
        """Products of queries with keys, of weights with values, and of queries with all distances."""
        return tokens * (2 * keys + keys + (length if config.attention_type == "bi" else 1)) * hidden

    dense = (2 * predictions + 2 * memory) * hidden * hidden + predictions * inner
    attention = scores(length + predictions, length + memory) - scores(length, length)
    return 2.0 * config.num_steps * (dense + attention)


def _parts(config: AlbertConfig, length: int) -> tuple[float, float]:
    """The work beside the steps, and that of a step."""
    # Of the plan's steps: how many an equilibrium makes, its result says.
    work = flops(config.replace(equilibrium_solver="none"), length)
    fixed = work.projection + work.pooler
    return fixed, (work.total - fixed) / config.num_steps


def _repeated(config: AlbertConfig) -> int:
    """Blocks that an equilibrium's step runs."""
    return len(segments(config)[repeated_segment(config)].steps)


def _extra_steps(config: AlbertConfig, result: Mapping[str, float]) -> float:
    if config.equilibrium_solver == "none":
        return 0.0
    return (result["equilibrium_steps"] - segments(config)[repeated_segment(config)].repeats) * _repeated(config)

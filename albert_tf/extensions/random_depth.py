"""Random depth: every training batch has its own number of layers."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import repeat, run_if, site_seed
from albert_tf.config.extension import Extension
from albert_tf.config.other_depths import repeated_run
from albert_tf.config.registry import Weights
from albert_tf.layers.block import Step
from albert_tf.layers.depth import DepthLoop, Runner, Segment, runs_of
from tfrecords.base.errors import UserError

# Larger than all dropout sites' numbers.
_DEPTH_SITE = 1 << 20


@dataclasses.dataclass(frozen=True)
class RandomDepth(Extension):
    """Randomizes how often the repeated blocks run in training.

    Attributes:
        random_depth_min: every batch draws its number of layers uniformly from this to num_hidden_layers; 0: all
            batches run num_hidden_layers.
    """

    name, order, draws = "random_depth", 8, True
    published = free = ("random_depth_min",)
    random_depth_min: int = 0

    def check(self, config: Any) -> None:
        if self.random_depth_min > config.num_hidden_layers:
            raise UserError(
                f"random_depth_min {self.random_depth_min} is over num_hidden_layers {config.num_hidden_layers}"
            )
        depth_draw(config)

    def at_depth(self, depth: int) -> dict[str, Any]:
        return {"random_depth_min": 0} if self.random_depth_min >= depth else {}

    def unshared(self) -> dict[str, Any]:
        return {"random_depth_min": 0}

    def conflicts(self) -> dict[str, str]:
        return {
            "global_attention_every": "a step would be local at one depth and not at another",
            "halting": "both decide how many steps are run",
        }

    def around(self, runner: Runner, weights: Weights) -> Runner:
        # Exports have rows without seeds.
        seed, draw = getattr(runner.rows, "draw_seed", None), depth_draw(runner.config)
        return runner if seed is None or draw is None else _Drawn(runner, draw, draw(seed))


class DepthDraw(NamedTuple):
    """The range of random depths: each batch repeats one Segment, `runs_of(config)[place]`, `least` to `most` times."""

    place: int
    least: int
    most: int

    def __call__(self, seed: Tensor) -> Tensor:
        return whole_number(self.least, self.most, site_seed(seed, _DEPTH_SITE))

    def turns(self, config: Any) -> list[int]:
        return [
            turn if place == self.place else -1
            for place, run in enumerate(runs_of(config))
            for turn in range(run.repeats)
            for _ in run.steps
        ]


def whole_number(low: int, high: int, seed: Tensor) -> Tensor:
    """Returns a random int32 scalar from `low` to `high`, both included; the same on every backend."""
    # A hash of the seed: MurmurHash3's last step, twice.
    first, second = (ops.cast(seed, "uint32")[i] for i in (0, 1))
    bits = _mixed(ops.bitwise_xor(_mixed(first), second))
    # The bits of a float32's mantissa.
    part = ops.cast(ops.bitwise_right_shift(bits, _uint32(8)), "float32") / 2**24
    return low + ops.cast(ops.floor(part * (high + 1 - low)), "int32")


def _mixed(bits: Tensor) -> Tensor:
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = ops.bitwise_xor(bits, ops.bitwise_right_shift(bits, _uint32(shift))) * _uint32(factor)
    return ops.bitwise_xor(bits, ops.bitwise_right_shift(bits, _uint32(16)))


def _uint32(number: int) -> Tensor:
    return ops.convert_to_tensor(number, "uint32")


@functools.lru_cache(maxsize=64)
def depth_draw(config: Any) -> DepthDraw | None:
    """Returns the range of random depths; None if `random_depth_min` is 0 or leaves no choice.

    >>> from albert_tf import AlbertConfig
    >>> tuple(depth_draw(AlbertConfig(depth_plan="1+2x5+1", random_depth_min=5)))
    (1, 2, 5)
    """
    if not config.random_depth_min:
        return None
    place, _, run, fixed = repeated_run(config, f"random_depth_min {config.random_depth_min} cannot be drawn from")
    least = max(1, -(-(config.random_depth_min * config.inner_group_num - fixed) // len(run.steps)))
    return DepthDraw(place, least, run.repeats) if least < run.repeats else None


class _Drawn(Runner):
    def __init__(self, inner: Runner, draw: DepthDraw, drawn: Tensor):
        super().__init__(inner)
        self.draw, self.drawn, self.turns = draw, drawn, draw.turns(inner.config)

    def step(self, step: Step, state: Any) -> tuple[Any, Tensor]:
        number = step.number
        if not isinstance(number, int) or self.turns[number] < self.draw.least:
            return self.inner.step(step, state)
        # The condition must be inside the recomputed part: otherwise TensorFlow finds no gradient.
        run = functools.partial(self._after, step)
        return run_if(self.turns[number] < self.drawn, run, state), state

    def _after(self, step: Step, state: Any) -> Any:
        return self.inner.step(step, state)[0]

    def repeat(self, place: int, segment: Segment, cycle: Callable, state: Any, loop: DepthLoop) -> Any:
        if loop.kind == "loop" and place == self.draw.place and segment.repeats > 1:
            return repeat(cycle, segment.repeats, state, self.drawn)
        return self.inner.repeat(place, segment, cycle, state, loop)

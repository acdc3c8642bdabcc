"""The order of blocks over depth, and the loop that runs them."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import repeat
from albert_tf.config import AlbertConfig
from albert_tf.config.depth_plan import plan_cycles
from albert_tf.config.registry import Weights
from albert_tf.layers.block import Kernels, Rows, Step, block


class Segment(NamedTuple):
    """Consecutive steps, and how often they repeat."""

    steps: tuple[Step, ...]
    repeats: int


def cycles_of(config: AlbertConfig) -> list[tuple[Step, ...]]:
    """Returns the steps of each cycle.

    A cycle is a layer or, with a depth plan, one pass through a part of the plan.
    """
    count, sharing = itertools.count(), config.sharing
    shares_attention, shares_ffn = sharing in ("all", "attention"), sharing in ("all", "ffn")
    # For each step: the number of a half that steps share, and of a half that only this step has.
    numbered = [[(shared, next(count)) for shared in cycle] for cycle in _shared_cycles(config)]
    return [
        tuple(Step(shared if shares_attention else own, shared if shares_ffn else own) for shared, own in cycle)
        for cycle in numbered
    ]


def _shared_cycles(config: AlbertConfig) -> list[range]:
    inner, layers = config.inner_group_num, config.num_hidden_layers
    if config.depth_plan:
        return plan_cycles(config.depth_plan)
    # Integers: the float forms of google-research and HuggingFace err (22 layers in 22 groups is the first).
    groups = [layer * config.num_hidden_groups // layers for layer in range(layers)]
    return [range(group * inner, (group + 1) * inner) for group in groups]


def _period(config: AlbertConfig) -> int:
    return math.lcm(1, *(extension.period() for extension in config.extensions))


def plan(config: AlbertConfig) -> list[Step]:
    """Lists all `config.num_steps` depth steps in order."""
    steps, period = itertools.chain(*cycles_of(config)), _period(config)
    return [step._replace(phase=number % period) for number, step in enumerate(steps)]


def segments(config: AlbertConfig) -> list[Segment]:
    """Groups the steps of the plan into Segments, each of which one loop can run."""
    steps, result, done = plan(config), list[Segment](), 0
    for run in runs_of(config):
        # Joins cycles until the phases repeat.
        joined = math.lcm(len(run.steps), _period(config)) // len(run.steps)
        for count, times in ((joined, run.repeats // joined), (run.repeats % joined, 1)):
            if count and times:
                length = count * len(run.steps)
                result.append(Segment(tuple(steps[done : done + length]), times))
                done += length * times
    return result


def runs_of(config: AlbertConfig) -> list[Segment]:
    """Groups consecutive equal cycles of `cycles_of` into Segments; unlike `segments`, ignores `Step.phase`.

    >>> [(len(run.steps), run.repeats) for run in runs_of(AlbertConfig(depth_plan="1+2x5+1"))]
    [(1, 1), (2, 5), (1, 1)]
    """
    return [Segment(cycle, len(list(equal))) for cycle, equal in itertools.groupby(cycles_of(config))]


def of_step(table: Any, step: Any) -> Any:
    """Returns a step's entry of `table`, [steps, ...]."""
    return ops.convert_to_tensor(table)[step]


def visit_of(config: AlbertConfig, steps: Sequence[int], step: Any) -> Any:
    """Returns the index of `step`, an int or a scalar tensor, in `steps`."""
    if isinstance(step, int):
        return steps.index(step)
    table = [steps.index(i) if i in steps else 0 for i in range(config.num_steps)]
    return ops.convert_to_tensor(table, "int32")[step]


class Runner:
    """Runs depth steps on a state. A subclass wraps another runner, `inner`, and delegates to it what it lacks.

    `BlockRunner` lists all methods. A state is a tensor, or tensors in tuples, with tokens on axis 0. Use weights only
    within `step`: with recomputation, TensorFlow computes no gradients of weights used elsewhere.
    """

    inner: Any = None

    def __init__(self, inner: "Runner"):
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class BlockRunner(Runner):
    """The innermost runner: applies blocks to the state [tokens, hidden_size]."""

    def __init__(self, config: AlbertConfig, kernels: Kernels, rows: Rows):
        self.config, self.kernels, self.rows = config, kernels, rows

    def begin(self, hidden: Tensor) -> Any:
        return hidden

    def step(self, step: Step, state: Any) -> tuple[Any, Tensor]:
        """Returns the state after a step, and the input of its block."""
        return block(self.kernels, self.rows, step, state), state

    def carried(self, state: Any) -> Tensor:
        """Returns the output [tokens, hidden_size] as if this state were the last and no token had halted early."""
        return state

    def result(self, state: Any) -> Tensor:
        return state

    def is_open(self, state: Any) -> Tensor | bool:
        """Returns whether any token still needs steps; called by exports only."""
        return True

    def repeat(self, place: int, segment: Segment, cycle: Callable, state: Any, loop: "DepthLoop") -> Any:
        """Runs all repeats of segment number `place`; cycle(i, state) runs repeat i.

        Only the outermost runner may override this.
        """
        if loop.kind == "loop" and segment.repeats > 1:
            return repeat(cycle, segment.repeats, state, goes_on=loop.runner.is_open if loop.stops else None)
        for i in range(segment.repeats):
            state = cycle(i, state)
        return state

    def report(self, state: Any) -> tuple[dict[str, Tensor], list[Tensor], dict[str, Tensor]]:
        """Returns further outputs, losses, and metric values by name, from the last state."""
        return {}, [], {}


def make_runner(config: AlbertConfig, kernels: Kernels, rows: Rows, weights: dict[str, Weights]) -> Runner:
    """Returns a BlockRunner, wrapped by the extensions' runners."""
    runner: Runner = BlockRunner(config, kernels, rows)
    for extension in sorted(config.extensions, key=lambda one: one.order):
        runner = extension.around(runner, weights[extension.name])
    return runner


class DepthLoop:
    """Runs all steps of the plan; `kind` is AlbertEncoder's `walk`.

    With `stops`, a graph loop ends once the runner's `is_open` is false, but has no gradients. `observe` is called with
    the state before each step, except in graph loops.
    """

    def __init__(self, kind: str = "unrolled", stops: bool = False, observe: Callable[[Any], None] | None = None):
        self.kind, self.stops, self.observe = kind, stops, observe

    def __call__(self, runner: Runner, state: Any) -> Any:
        for place, (segment, cycle) in enumerate(self.cycles(runner)):
            state = runner.repeat(place, segment, cycle, state, self)
        return state

    def cycles(self, runner: Runner) -> list[tuple[Segment, Callable]]:
        """Returns the plan's segments, each with a function (i, state) that runs the segment's repeat i."""
        self.runner, done, found = runner, 0, []
        for segment in self.segments(runner.config):

            def cycle(i: Tensor, state: Any, segment: Segment = segment, done: int = done) -> Any:
                first = i if len(segment.steps) == 1 else i * len(segment.steps)
                for offset, step in enumerate(segment.steps, done):
                    state = self.step(step._replace(number=first + offset if offset else first), state)
                return state

            found.append((segment, cycle))
            done += segment.repeats * len(segment.steps)
        return found

    def segments(self, config: AlbertConfig) -> list[Segment]:
        return segments(config)

    def step(self, step: Step, state: Any) -> Any:
        if self.observe is not None:
            self.observe(state)

        def run(state: Any) -> Any:
            return self.runner.step(step, state)[0]

        return (keras.remat(run) if self.kind == "recompute" else run)(state)

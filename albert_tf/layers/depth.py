"""Which weights run at which step of the depth."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.depth_plan import Part, read_depth_plan, write_depth_plan
from tfrecords.base.errors import UserError


class Step(NamedTuple):
    """Says which attention and which feed-forward sub-layer run, by their indices in the encoder.

    Attributes:
        attention: the one's index.
        feed_forward: the other's.
        phase: which step it is of the period after which what extensions do at a step repeats; see `Extension.period`.
    """

    attention: int
    feed_forward: int
    phase: int = 0


class Segment(NamedTuple):
    """Names some steps in a row, and how often that row is repeated."""

    steps: tuple[Step, ...]
    repeats: int


def cycles(config: AlbertConfig) -> list[tuple[Step, ...]]:
    """Lists the steps in the rows that may repeat: a part's blocks run once, or a layer's inner groups.

    A shared half belongs to the group `layer * groups // layers`. Whole numbers: the float forms of google-research
    and HuggingFace skip or repeat a group for some depths (22 layers in 22 groups is the first).
    """
    result: list[tuple[Step, ...]] = []
    own = 0
    for shared in _shared_cycles(config):
        result.append(
            tuple(
                Step(
                    attention=half if config.sharing in ("all", "attention") else own + offset,
                    feed_forward=half if config.sharing in ("all", "ffn") else own + offset,
                )
                for offset, half in enumerate(shared)
            )
        )
        own += len(shared)
    return result


def _shared_cycles(config: AlbertConfig) -> list[range]:
    """The numbers of the blocks in every cycle, were both halves shared."""
    inner, layers = config.inner_group_num, config.num_hidden_layers
    if not config.depth_plan:
        groups = [layer * config.num_hidden_groups // layers for layer in range(layers)]
        return [range(group * inner, (group + 1) * inner) for group in groups]
    result, first = list[range](), 0
    for part in read_depth_plan(config.depth_plan):
        result += [range(first + row.start, first + row.stop, row.step) for row in part.cycles]
        first += part.blocks
    return result


def plan(config: AlbertConfig) -> list[Step]:
    """Lists the weights of every executed block, in order: `config.num_steps` of them."""
    steps, period = [step for cycle in cycles(config) for step in cycle], _period(config)
    return [step._replace(phase=number % period) for number, step in enumerate(steps)]


def _period(config: AlbertConfig) -> int:
    return math.lcm(1, *(extension.period() for extension in config.extensions))


def segments(config: AlbertConfig) -> list[Segment]:
    """Cuts the plan into runs of equal steps, counted instead of listed: one loop each."""
    steps, result, done = plan(config), list[Segment](), 0
    for run in runs_of(config):
        # As many cycles make one as have the same phases.
        joined = math.lcm(len(run.steps), _period(config)) // len(run.steps)
        for count, times in ((joined, run.repeats // joined), (run.repeats % joined, 1)):
            if count and times:
                length = count * len(run.steps)
                result.append(Segment(tuple(steps[done : done + length]), times))
                done += length * times
    return result


def runs_of(config: AlbertConfig) -> list[Segment]:
    """The plan's runs of equal cycles, whatever their steps attend to: what can be run more or less often."""
    result: list[Segment] = []
    for cycle in cycles(config):
        if result and result[-1].steps == cycle:
            result[-1] = Segment(cycle, result[-1].repeats + 1)
        else:
            result.append(Segment(cycle, 1))
    return result


def of_step(table: Any, step: Any) -> Any:
    """Gives the row of a step out of a weight [steps, ...]; `step` is an int, or a scalar tensor within a loop."""
    return ops.convert_to_tensor(table)[step]


def visit_of(config: AlbertConfig, steps: Sequence[int], step: Any) -> Any:
    """Tells which of the `steps` that run some weights one of the plan is: an int, or a scalar tensor within a loop."""
    if isinstance(step, int):
        return steps.index(step)
    table = [steps.index(i) if i in steps else 0 for i in range(config.num_steps)]
    return ops.convert_to_tensor(table, "int32")[step]


def repeated_segment(config: AlbertConfig) -> int | None:
    """Finds the one among the runs that can be run more or less often; None where none repeats, or more than one."""
    runs = runs_of(config)
    if config.sharing == "all" and len(runs) == 1:
        return 0
    repeated = [place for place, run in enumerate(runs) if run.repeats > 1]
    return repeated[0] if len(repeated) == 1 else None


def at_depth(config: AlbertConfig, depth: int) -> AlbertConfig:
    """Gives the configuration that runs the same blocks through `depth` layers: the repeated ones more or less often.

    Raises:
        UserError: the plan has no such depth.

    >>> at_depth(AlbertConfig.named("albert_base_v2").replace(depth_plan="1+1x10+1"), 8).depth_plan
    '1+1x6+1'
    """
    if depth == config.num_hidden_layers:
        return config
    if any(extension.walk for extension in config.extensions):
        raise UserError(f"depth {depth} cannot be run: a walk to an equilibrium goes on until it is there")
    place, _, run, fixed = repeated_run(config, f"depth {depth} cannot be run")
    repeats, rest = divmod(depth * config.inner_group_num - fixed, len(run.steps))
    if rest or repeats < 1:
        few = [(fixed + count * len(run.steps)) // config.inner_group_num for count in (1, 2, 3)]
        raise UserError(f"depth {depth} cannot be run: this plan has the depths {', '.join(map(str, few))} and so on")
    changes: dict[str, Any] = {"num_hidden_layers": depth}
    if config.depth_plan:
        parts = read_depth_plan(config.depth_plan)
        number = _owners(parts)[place]
        parts[number] = parts[number]._replace(repeats=parts[number].repeats + repeats - run.repeats)
        changes["depth_plan"] = write_depth_plan(parts)
    for extension in config.extensions:
        changes |= extension.at_depth(depth)
    try:
        return config.replace(**changes)
    except UserError as error:
        raise UserError(f"depth {depth} cannot be run: {error}") from error


def kept_steps(config: AlbertConfig, depth: int) -> list[int]:
    """Lists the steps of the plan that a lower depth keeps, with what weights they have of their own."""
    dropped = config.num_steps - at_depth(config, depth).num_steps
    if dropped <= 0:
        return list(range(config.num_steps))
    _, first, run, _ = repeated_run(config)
    end = first + run.repeats * len(run.steps)
    return [*range(end - dropped), *range(end, config.num_steps)]


class Repeated(NamedTuple):
    """The segment that can be run more or less often.

    Attributes:
        place: which one among `segments`.
        first: the number of its first step.
        run: the segment.
        fixed: steps outside it.
    """

    place: int
    first: int
    run: Segment
    fixed: int


def repeated_run(config: AlbertConfig, problem: str = "") -> Repeated:
    """Returns the segment that can be run more or less often; UserError, which `problem` begins, if there is none."""
    runs, place = runs_of(config), repeated_segment(config)
    if place is None:
        plan = f"depth_plan '{config.depth_plan}'" if config.depth_plan else f"sharing '{config.sharing}'"
        groups = f" in {config.num_hidden_groups} groups" if config.num_hidden_groups > 1 else ""
        raise UserError(
            f"{problem}: in {config.num_hidden_layers} layers with {plan}{groups} there is no single run of blocks that"
            " repeats, which could do so more or less often"
        )
    counts = [run.repeats * len(run.steps) for run in runs]
    return Repeated(place, sum(counts[:place]), runs[place], sum(counts) - counts[place])


def _owners(parts: list[Part]) -> list[int]:
    """The number of the part that each of `segments` is of: one that ends reversed makes two."""
    return [
        number
        for number, part in enumerate(parts)
        for _ in range(2 if part.is_reversed and part.repeats > 1 and part.blocks > 1 else 1)
    ]

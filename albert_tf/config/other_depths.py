"""Configurations that run a model's blocks at another depth."""

from typing import Any, NamedTuple

from albert_tf.config import AlbertConfig
from albert_tf.config.depth_plan import PlanPart, read_depth_plan
from albert_tf.layers.depth import Segment, runs_of
from tfrecords.base.errors import UserError


def repeated_segment(config: AlbertConfig) -> int | None:
    """Returns the index, in `runs_of(config)`, of the only Segment whose number of repeats may change, or None."""
    runs = runs_of(config)
    if config.sharing == "all" and len(runs) == 1:
        return 0
    repeated = [place for place, run in enumerate(runs) if run.repeats > 1]
    return repeated[0] if len(repeated) == 1 else None


def at_depth(config: AlbertConfig, depth: int) -> AlbertConfig:
    """Returns the configuration that runs the same blocks through `depth` layers, or raises UserError.

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
    """Returns the numbers of the steps that a smaller `depth` keeps; at a greater depth, all numbers."""
    dropped = config.num_steps - at_depth(config, depth).num_steps
    if dropped <= 0:
        return list(range(config.num_steps))
    _, first, run, _ = repeated_run(config)
    end = first + run.repeats * len(run.steps)
    return [*range(end - dropped), *range(end, config.num_steps)]


class Repeated(NamedTuple):
    """The only repeated Segment, `run`, with its index, its first step's number, and the number of steps outside it."""

    place: int
    first: int
    run: Segment
    fixed: int


def repeated_run(config: AlbertConfig, problem: str = "") -> Repeated:
    """Returns the only repeated Segment; for none or several, raises UserError, which begins with `problem`."""
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


def _owners(parts: list[PlanPart]) -> list[int]:
    return [
        number
        for number, part in enumerate(parts)
        for _ in range(2 if part.is_reversed and part.repeats > 1 and part.blocks > 1 else 1)
    ]


def write_depth_plan(parts: list[PlanPart]) -> str:
    """Returns a plan's text, as `read_depth_plan` reads it.

    >>> write_depth_plan(read_depth_plan("1x1+2x5r"))
    '1+2x5r'
    """
    return "+".join(
        f"{blocks}" if repeats == 1 and not backwards else f"{blocks}x{repeats}{'r' * backwards}"
        for blocks, repeats, backwards in parts
    )

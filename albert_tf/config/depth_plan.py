"""The syntax of depth plans, such as "1+1x10+1"."""

import re
from typing import TYPE_CHECKING, NamedTuple

from tfrecords.base.errors import UserError, refuse

if TYPE_CHECKING:
    from albert_tf.config import AlbertConfig

_PART = re.compile(r"([1-9]\d{0,8})(?:x([1-9]\d{0,8})(r?))?")


class PlanPart(NamedTuple):
    """Blocks that run in sequence, `repeats` times; `is_reversed` reverses the order of the last time."""

    blocks: int
    repeats: int
    is_reversed: bool


def read_depth_plan(text: str) -> list[PlanPart]:
    """Returns the parts of a depth plan, which "+" joins; raises UserError for other texts.

    "A" runs A blocks; "AxB" runs A blocks B times; "AxBr" also reverses their order the last time. "3x4" is the "cycle"
    of Takase and Kiyono (arXiv:2104.06022) over three blocks, "3x4r" their "cycle (rev)".

    >>> [tuple(part) for part in read_depth_plan("1+2x5+1")]
    [(1, 1, False), (2, 5, False), (1, 1, False)]
    """
    parts = []
    for written in text.split("+"):
        found = _PART.fullmatch(written.strip())
        if found is None:
            raise UserError(
                f"depth_plan '{text}': '{written}' is no part of a plan; write '1+1x10+1' for a first block, "
                "one that runs ten times, and a last one; '2x6' for two in turn; '2x6r' with the last turn reversed"
            )
        blocks, repeats, backwards = found.groups()
        parts.append(PlanPart(int(blocks), int(repeats or 1), bool(backwards)))
    return parts


def plan_cycles(text: str) -> list[range]:
    """Returns the numbers of the blocks that run in each pass through a part of the plan.

    >>> [list(cycle) for cycle in plan_cycles("1+3x3r")]
    [[0], [1, 2, 3], [1, 2, 3], [3, 2, 1]]
    """
    cycles, first = list[range](), 0
    for blocks, repeats, is_reversed in read_depth_plan(text):
        passes = [range(first, first + blocks)] * repeats
        cycles += [*passes[:-1], passes[-1][::-1]] if is_reversed else passes
        first += blocks
    return cycles


def check_depth_plan(config: "AlbertConfig") -> None:
    """Raises UserError if a configuration's depth plan is invalid or conflicts with its other fields."""
    runs = sum(part.blocks * part.repeats for part in read_depth_plan(config.depth_plan))
    refuse({
        f"depth_plan '{config.depth_plan}' runs {runs} blocks, num_hidden_layers is {config.num_hidden_layers};"
        " the two must agree":
            runs != config.num_hidden_layers,
        "depth_plan takes the place of num_hidden_groups and inner_group_num; leave these at 1":
            config.num_hidden_groups > 1 or config.inner_group_num > 1,
        "depth_plan says which blocks are shared, sharing 'none' shares none; leave one out":
            config.sharing == "none",
    })  # fmt: skip

"""The syntax of depth plans, such as "1+1x10+1": which blocks run, in which order, how often."""

import re
from typing import NamedTuple

from tfrecords.base.errors import UserError

_PART = re.compile(r"([1-9]\d*)(?:x([1-9]\d*)(r?))?")


class Part(NamedTuple):
    """A part of a plan: blocks of its own that run in sequence, repeatedly.

    Attributes:
        blocks: number of blocks.
        repeats: number of passes.
        is_reversed: whether the last pass is in reversed order.
    """

    blocks: int
    repeats: int
    is_reversed: bool

    @property
    def cycles(self) -> list[range]:
        """Returns the block numbers within the part, a range for each pass."""
        rows = [range(self.blocks)] * self.repeats
        return [*rows[:-1], rows[-1][::-1]] if self.is_reversed else rows


def read_depth_plan(text: str) -> list[Part]:
    """Reads parts joined by "+": "A" or "AxB" for A blocks run B times, "AxBr" for the last time in reversed order.

    "3x4" is the "cycle" of Takase and Kiyono (arXiv:2104.06022) over three blocks, "3x4r" their "cycle (rev)".

    Raises:
        UserError: the text is no such plan.

    >>> [tuple(part) for part in read_depth_plan("1+2x5+1")]
    [(1, 1, False), (2, 5, False), (1, 1, False)]
    >>> [list(cycle) for cycle in read_depth_plan("3x3r")[0].cycles]
    [[0, 1, 2], [0, 1, 2], [2, 1, 0]]
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
        parts.append(Part(int(blocks), int(repeats or 1), bool(backwards)))
    return parts

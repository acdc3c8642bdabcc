"""The table of faults: what is done, what must hold, and the function that does it and looks."""

from collections.abc import Callable
from dataclasses import dataclass

from scripts.faults.stage import Stage


@dataclass(frozen=True)
class Row:
    """One fault.

    Attributes:
        name: Of the row, by which it is chosen.
        done: What is done, and to what.
        holds: What must hold.
        run: Does it; returns what was seen, raises Failed or Impossible.
    """

    name: str
    done: str
    holds: str
    run: Callable[[Stage], str]


ROWS: dict[str, Row] = {}


def row(name: str, done: str, holds: str) -> Callable:
    """Puts a function into the table."""

    def put(function: Callable[[Stage], str]) -> Callable[[Stage], str]:
        ROWS[name] = Row(name, done, holds, function)
        return function

    return put

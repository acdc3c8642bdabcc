from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False, slots=True)
class QueuedRow:
    """One row of the request `owner`; the row with the smallest `turn` is next."""

    owner: Any
    number: int
    texts: tuple[bytes, ...]
    size: int
    turn: int = 0


class TokenQueue:
    """Waiting rows by key; rows of one key share batches.

    A row's turn counts the tokens sent before its request came, plus those of the request's earlier rows. So later
    requests cannot starve a row, nor large requests a small one (Zhang, 1990, "Virtual Clock").

    >>> queue = TokenQueue()
    >>> rows = [QueuedRow("a", 0, (b"short",), 3), QueuedRow("a", 1, (b"long",), 90), QueuedRow("a", 2, (b"short",), 4)]
    >>> queue.add("model", rows)
    >>> queue.tokens
    97
    >>> [row.size for row in queue.take(max_tokens=50, max_rows=8)[1]]
    [3, 4]
    """

    def __init__(self) -> None:
        self._rows: dict[Hashable, list[QueuedRow]] = {}
        self._taken = 0
        self.tokens = 0

    def __bool__(self) -> bool:
        return bool(self._rows)

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def add(self, key: Hashable, rows: Sequence[QueuedRow]) -> None:
        turn = self._taken
        for row in rows:
            row.turn = turn
            turn += row.size
        self.tokens += turn - self._taken
        if rows:
            self._rows.setdefault(key, []).extend(rows)

    @property
    def keys(self) -> Collection[Hashable]:
        return self._rows.keys()

    def drop(self, owner: Any) -> list[QueuedRow]:
        """Removes and returns the rows of a request."""
        dropped = []
        for key, rows in list(self._rows.items()):
            dropped += [row for row in rows if row.owner is owner]
            self._keep(key, [row for row in rows if row.owner is not owner])
        return dropped

    def take(
        self, max_tokens: int, max_rows: int, keys: Collection[Hashable] | None = None
    ) -> tuple[Any, list[QueuedRow]]:
        """Removes and returns the next batch: its key, the row with the smallest turn and those nearest in length.

        `keys`: those to choose from; by default all.
        """
        key, first = min(
            ((key, min(self._rows[key], key=_turn)) for key in keys or self._rows), key=lambda pair: pair[1].turn
        )
        batch = _nearest(self._rows[key], first, max_tokens, max_rows)
        chosen = set(map(id, batch))
        self._keep(key, [row for row in self._rows[key] if id(row) not in chosen])
        self._taken += sum(row.size for row in batch)
        return key, batch

    def _keep(self, key: Hashable, rows: list[QueuedRow]) -> None:
        self.tokens += sum(row.size for row in rows) - sum(row.size for row in self._rows[key])
        if rows:
            self._rows[key] = rows
        else:
            del self._rows[key]


def _turn(row: QueuedRow) -> int:
    return row.turn


def _nearest(rows: list[QueuedRow], first: QueuedRow, max_tokens: int, max_rows: int) -> list[QueuedRow]:
    if len(rows) <= max_rows and sum(row.size for row in rows) <= max_tokens:
        return rows
    order = sorted(rows, key=lambda row: (row.size, row.turn))
    low = high = next(place for place, row in enumerate(order) if row is first)
    room = max_tokens - first.size
    while high - low + 1 < max_rows:
        shorter = order[low - 1].size if low else None
        longer = order[high + 1].size if high + 1 < len(order) else None
        if longer is not None and longer <= room and (shorter is None or longer - first.size <= first.size - shorter):
            high, room = high + 1, room - longer
        elif shorter is not None and shorter <= room:
            low, room = low - 1, room - shorter
        else:
            break
    return order[low : high + 1]

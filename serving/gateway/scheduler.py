"""Sends waiting rows in batches, limited in tokens, whenever the model is free."""

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from serving.client import ServingError
from serving.client.tasks import TRUNCATED_TOKENS
from serving.gateway.errors import RETRY_S, Refusal, gone
from serving.gateway.token_queue import QueuedRow, TokenQueue
from serving.wire.request_id import current, joined

_LONGEST_RETRY_S = 60


@dataclass(frozen=True)
class Limits:
    """Limits of batches and queue.

    A row above `max_batch_tokens` is sent alone. Requests beyond `max_queued_tokens` are refused, unless the queue is
    empty.
    """

    max_batch_tokens: int = 1024
    max_batch_rows: int = 256
    max_in_flight: int = 2
    max_queued_tokens: int = 65536


@dataclass
class ModelBatch:
    """The rows of one call to the model, from requests with the same `key`.

    `timeout_s` is the longest of the requests' remaining times.
    """

    key: Any
    rows: list[QueuedRow]
    counts: bool
    contexts: list[Any]
    timeout_s: float

    @property
    def request_id(self) -> str:
        return joined([row.owner.request_id for row in self.rows])

    @property
    def texts(self) -> list[tuple[bytes, ...]]:
        return [row.texts for row in self.rows]


@dataclass
class BatchAnswer:
    """The model's answer to a batch.

    Attributes:
        tokens: tokens that the model read, per row; None if not counted.
        counts: token counts of each row, by name in serving.client.tasks.COUNTS.
    """

    outputs: dict[str, np.ndarray]
    tokens: np.ndarray | None
    counts: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(eq=False)
class QueuedRequest:
    """A request in the queue or at the model; times are of `time.time_ns`."""

    count: int
    counts: bool
    context: Any
    deadline: float
    done: asyncio.Future
    places: list[tuple[BatchAnswer, int]] = field(default_factory=list)
    left: int = 0
    queued_ns: int = 0
    started_ns: int = 0
    ended_ns: int = 0
    request_id: str = field(default_factory=current)

    def output(self, name: str) -> np.ndarray:
        """Returns an output [rows, ...]; raises Refusal if batches differ in size: the model changed in between."""
        try:
            return np.stack(self.rows(name))
        except ValueError:
            raise gone() from None

    def rows(self, name: str) -> list[Any]:
        return [answer.outputs[name][place] for answer, place in self.places]

    def each(self, *names: str) -> list[tuple[Any, ...]]:
        return list(zip(*map(self.rows, names), strict=True))

    @property
    def tokens(self) -> list[int] | None:
        if any(answer.tokens is None for answer, _ in self.places):
            return None
        return [int(answer.tokens[place]) for answer, place in self.places]

    @functools.cached_property
    def truncated(self) -> list[bool] | None:
        """Returns whether each row was truncated; None if that was not counted, or not requested."""
        found = []
        for answer, place in self.places:
            if TRUNCATED_TOKENS not in answer.counts or not (self.counts or TRUNCATED_TOKENS in answer.outputs):
                return None
            found.append(bool(answer.counts[TRUNCATED_TOKENS][place] > 0))
        return found

    def flagged(self, row: int) -> dict[str, bool]:
        return {} if self.truncated is None else {"truncated": self.truncated[row]}


class Scheduler:
    """Sends waiting rows as soon as the model is free.

    `run` answers a batch or raises ServingError. `on_batch` gets each batch, its answer and its duration in seconds.
    """

    def __init__(
        self,
        run: Callable[[ModelBatch], Awaitable[BatchAnswer]],
        limits: Limits,
        on_batch: Callable[[ModelBatch, BatchAnswer, float], None] = lambda *_: None,
    ):
        self._run, self._limits, self._on_batch = run, limits, on_batch
        self._queue = TokenQueue()
        self._flights: set[asyncio.Task] = set()
        self._rate = 0.0

    @property
    def queued_rows(self) -> int:
        return len(self._queue)

    @property
    def queued_tokens(self) -> int:
        return self._queue.tokens

    @property
    def in_flight(self) -> int:
        return len(self._flights)

    async def answer(
        self,
        key: Hashable,
        texts: Sequence[tuple[bytes, ...]],
        sizes: Sequence[int],
        timeout_s: float,
        counts: bool = False,
        context: Any = None,
    ) -> QueuedRequest:
        """Returns the answers to rows; if the call is cancelled, its waiting rows leave the queue.

        Rows of one `key` share batches. `sizes` are the rows' estimated tokens. `timeout_s` is for queue and model
        together.

        Raises:
            Refusal: 429 if the queue is full.
            ServingError: a batch failed.
            TimeoutError: after `timeout_s`.
        """
        self._check_room(sum(sizes))
        loop = asyncio.get_running_loop()
        work = QueuedRequest(len(texts), counts, context, loop.time() + timeout_s, loop.create_future())
        work.places, work.left, work.queued_ns = [None] * len(texts), len(texts), time.time_ns()
        rows = [QueuedRow(work, number, row, size) for number, (row, size) in enumerate(zip(texts, sizes, strict=True))]
        self._queue.add(key, rows)
        self._send()
        try:
            async with asyncio.timeout_at(work.deadline):
                await work.done
        except BaseException:
            self._queue.drop(work)
            raise
        return work

    def _check_room(self, tokens: int) -> None:
        waiting = self._queue.tokens
        if waiting and waiting + tokens > self._limits.max_queued_tokens:
            seconds = waiting / self._rate if self._rate else RETRY_S
            after = min(max(RETRY_S, math.ceil(seconds)), _LONGEST_RETRY_S)
            raise Refusal(429, "too many requests wait for the model", "overloaded", after)

    def _send(self) -> None:
        while self._queue and len(self._flights) < self._limits.max_in_flight:
            key, rows = self._queue.take(self._limits.max_batch_tokens, self._limits.max_batch_rows)
            flight = asyncio.get_running_loop().create_task(self._fly(key, rows))
            self._flights.add(flight)
            flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task) -> None:
        self._flights.discard(flight)
        if not flight.cancelled():
            flight.exception()  # Its requests receive the error.
        self._send()

    async def _fly(self, key: Hashable, rows: list[QueuedRow]) -> None:
        try:
            await self._try(key, rows)
        except ServingError as error:
            works = _owners(rows)
            if error.code is not grpc.StatusCode.INVALID_ARGUMENT or len(works) == 1:
                self._fail(works, error)
                return
            # One bad request must not fail the others.
            for work in works:
                await self._fly(key, [row for row in rows if row.owner is work])
        except BaseException as error:
            self._fail(_owners(rows), error if isinstance(error, Exception) else gone())
            raise

    async def _try(self, key: Hashable, rows: list[QueuedRow]) -> None:
        works, loop, begin = _owners(rows), asyncio.get_running_loop(), time.time_ns()
        for work in works:
            work.started_ns = work.started_ns or begin
        latest = max(work.deadline for work in works)
        contexts = [work.context for work in works if work.context is not None]
        batch = ModelBatch(key, rows, any(work.counts for work in works), contexts, max(latest - loop.time(), 0.001))
        start = loop.time()
        answer = await self._run(batch)
        seconds = loop.time() - start
        rate = sum(row.size for row in rows) / max(seconds, 1e-6)
        self._rate += 0.2 * (rate - self._rate) if self._rate else rate
        self._on_batch(batch, answer, seconds)
        for place, row in enumerate(rows):
            row.owner.places[row.number] = answer, place
            row.owner.left -= 1
        for work in works:
            if not work.left and not work.done.done():
                work.ended_ns = time.time_ns()
                work.done.set_result(None)

    def _fail(self, works: Sequence[QueuedRequest], error: BaseException) -> None:
        for work in works:
            self._queue.drop(work)
            if not work.done.done():
                work.done.set_exception(error)

    async def close(self) -> None:
        while self._queue:
            _, rows = self._queue.take(self._limits.max_batch_tokens, self._limits.max_batch_rows)
            self._fail(_owners(rows), gone())
        for flight in list(self._flights):
            flight.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await flight


def _owners(rows: Sequence[QueuedRow]) -> list[QueuedRequest]:
    return list(dict.fromkeys(row.owner for row in rows))

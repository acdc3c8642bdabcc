"""Sends waiting rows in batches, limited in tokens, whenever the model is free."""

import asyncio
import contextlib
import functools
import math
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from serving.client import ServingError
from serving.client.tasks import TRUNCATED_TOKENS
from serving.gateway.errors import RETRY_S, Refusal, gone
from serving.gateway.settings import GatewayOptions
from serving.gateway.token_queue import QueuedRow, TokenQueue
from serving.wire.request_id import current, joined

_LONGEST_RETRY_S = 60


@dataclass
class ModelBatch:
    """The rows of one call to the model, from requests with the same `key`.

    `timeout_s` is the longest of the requests' remaining times.
    """

    key: Any
    rows: list[QueuedRow]
    counts: bool
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
    """A request in the queue or at the model; times are of `time.time_ns`.

    Attributes:
        take: called with the size of each part of its answer, in bytes; may raise.
        share: the part of its tokens that counts in the queue.
        sizes: estimated tokens of each row.
    """

    key: Any
    counts: bool
    deadline: float
    done: asyncio.Future
    take: Callable[[int], None]
    share: float
    places: list[tuple[BatchAnswer, int]] = field(default_factory=list)
    sizes: Sequence[int] = ()
    queued_ns: int = 0
    started_ns: int = 0
    ended_ns: int = 0
    request_id: str = field(default_factory=current)
    context: Context = field(default_factory=copy_context)

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
    def model(self) -> Any:
        return self.key[0]

    @property
    def task(self) -> Any:
        return self.key[1]

    @property
    def tokens(self) -> list[int]:
        """The tokens of each row, where the model counted them; else the estimates."""
        if any(answer.tokens is None for answer, _ in self.places):
            return list(self.sizes)
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

    A row above `max_batch_tokens` is sent alone. One request counts for at most half of `max_queued_tokens`.

    `run` answers a batch or raises ServingError. `on_batch` gets each batch, its answer and its duration in seconds.
    """

    def __init__(
        self,
        run: Callable[[ModelBatch], Awaitable[BatchAnswer]],
        limits: GatewayOptions,
        on_batch: Callable[[ModelBatch, BatchAnswer, float], None] = lambda *_: None,
    ):
        self._run, self._limits, self._on_batch = run, limits, on_batch
        self._queue = TokenQueue()
        self._waiting: Counter[Hashable] = Counter()
        # The model of each.
        self._flights: dict[asyncio.Task, Hashable] = {}
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
        key: Sequence[Hashable],
        texts: Sequence[tuple[bytes, ...]],
        sizes: Sequence[int],
        timeout_s: float,
        counts: bool = False,
        take: Callable[[int], None] = lambda size: None,
    ) -> QueuedRequest:
        """Returns the answers to rows; if the call is cancelled, its waiting rows leave the queue.

        Rows of one `key`, which begins with the model, share batches. `sizes` are the rows' estimated tokens.
        `timeout_s` is for queue and model together.

        Raises:
            Refusal: 429 if the queue is full.
            ServingError: a batch failed.
            TimeoutError: after `timeout_s`.
            Exception: what `take` raised.
        """
        tokens = sum(sizes)
        counted = min(tokens, self._limits.max_queued_tokens / 2)
        self._check_room(key[0], counted)
        loop = asyncio.get_running_loop()
        done, deadline = loop.create_future(), loop.time() + timeout_s
        work = QueuedRequest(key, counts, deadline, done, take, counted / max(tokens, 1), sizes=sizes)
        work.places, work.queued_ns = [None] * len(texts), time.time_ns()
        rows = [QueuedRow(work, number, row, size) for number, (row, size) in enumerate(zip(texts, sizes, strict=True))]
        self._queue.add(key, rows)
        self._count(rows, 1)
        self._send()
        try:
            async with asyncio.timeout_at(work.deadline):
                await work.done
        except BaseException:
            self._count(self._queue.drop(work), -1)
            raise
        return work

    def _count(self, rows: Sequence[QueuedRow], sign: int) -> None:
        for row in rows:
            self._waiting[row.owner.key[0]] += sign * row.size * row.owner.share

    def _check_room(self, model: Hashable, tokens: float) -> None:
        waiting = self._waiting[model]
        if waiting + tokens > self._limits.max_queued_tokens:
            seconds = waiting / self._rate if self._rate else RETRY_S
            after = min(max(RETRY_S, math.ceil(seconds)), _LONGEST_RETRY_S)
            raise Refusal(429, "too many requests wait for the model", "overloaded", after)

    def _send(self) -> None:
        while keys := self._keys_to_send():
            key, rows = self._queue.take(self._limits.max_batch_tokens, self._limits.max_batch_rows, keys)
            self._count(rows, -1)
            flight = asyncio.get_running_loop().create_task(self._fly(key, rows), context=rows[0].owner.context)
            self._flights[flight] = key[0]
            flight.add_done_callback(self._landed)

    def _keys_to_send(self) -> list[Any]:
        # One model that hangs must not take the places of all.
        busy = self._flights.values() if len(self._flights) >= self._limits.max_in_flight else ()
        return [key for key in self._queue.keys if key[0] not in busy]

    def _landed(self, flight: asyncio.Task) -> None:
        del self._flights[flight]
        if not flight.cancelled():
            flight.exception()  # Its requests receive the error.
        self._send()

    async def _fly(self, key: Hashable, rows: list[QueuedRow]) -> None:
        try:
            await self._try(key, rows)
        except ServingError as error:
            works = _owners(rows)
            may_be_one = error.code is grpc.StatusCode.INVALID_ARGUMENT or error.is_too_large
            if not may_be_one or len(works) == 1:
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
        batch = ModelBatch(key, rows, any(work.counts for work in works), max(latest - loop.time(), 0.001))
        start = loop.time()
        answer = await self._run(batch)
        seconds = loop.time() - start
        rate = sum(row.size for row in rows) / max(seconds, 1e-6)
        self._rate += 0.2 * (rate - self._rate) if self._rate else rate
        self._on_batch(batch, answer, seconds)
        for place, row in enumerate(rows):
            row.owner.places[row.number] = answer, place
        size = sum(map(_size, answer.outputs.values())) // len(rows)
        for work, count in Counter(row.owner for row in rows).items():
            try:
                if not work.done.done():
                    work.take(size * count)
            except Exception as error:
                self._fail([work], error)
            if None not in work.places and not work.done.done():
                work.ended_ns = time.time_ns()
                work.done.set_result(None)

    def _fail(self, works: Sequence[QueuedRequest], error: BaseException) -> None:
        for work in works:
            self._count(self._queue.drop(work), -1)
            if not work.done.done():
                work.done.set_exception(error)

    async def close(self) -> None:
        while self._queue:
            _, rows = self._queue.take(self._limits.max_batch_tokens, self._limits.max_batch_rows)
            self._count(rows, -1)
            self._fail(_owners(rows), gone())
        for flight in list(self._flights):
            flight.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await flight


def _size(values: np.ndarray) -> int:
    return values.nbytes + (sum(map(sys.getsizeof, values.flat)) if values.dtype.hasobject else 0)


def _owners(rows: Sequence[QueuedRow]) -> list[QueuedRequest]:
    return list(dict.fromkeys(row.owner for row in rows))

"""A model behind the gateway: tasks, availability, batches."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from serving.client import AsyncClient, Connection, ServingError, Signature
from serving.client.errors import UnreadableAnswer
from serving.client.tasks import (
    COUNTS,
    SPECIAL_TOKENS,
    RowsTask,
    estimated_tokens,
    find_tasks,
)
from serving.gateway.errors import Refusal, gone, is_busy, not_ready, unreadable
from serving.gateway.scheduler import BatchAnswer, ModelBatch
from serving.wire.request_id import request_id
from tfrecords.base.errors import UserError

_LOG = logging.getLogger(__name__)
# A text longer than any row; its token count after truncation is the model's maximum.
_MANY_WORDS = 20_000
_DOWN_CHECK_S = 1.0
# Calls to further servers of a name if one lacks the version.
_NEXT_SERVERS = 3
# So a server refuses a request that was made for other signatures.
_OF_ANOTHER_MODEL = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)
# Mask tokens of the vocabularies.
_MASKS = (b"[MASK]", b"<mask>")


@dataclass(eq=False)
class Reading:
    """What one version of a model told of itself. A request is asked and answered by one reading.

    Attributes:
        version: None if the server does not tell.
        labels: names of the classes.
        prompts: names of prompts; None where the model does not tell whether it has some.
        longest: the tokens of the longest row; None if unknown.
        is_whole: whether all tasks are known.
        on_failure: called after a failed call.
    """

    name: str
    client: AsyncClient
    version: int | None = None
    signatures: dict[str, Signature] = field(default_factory=dict)
    on_failure: Callable[[], None] = lambda: None
    is_whole: bool = False
    tasks: dict[str, RowsTask] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    prompts: tuple[str, ...] | None = None
    mask: str = ""
    special: frozenset[int] = frozenset()
    longest: int | None = None

    @property
    def facts(self) -> tuple:
        """All that was read, to compare."""
        read = self.version, self.signatures, self.tasks, self.labels, self.prompts, self.mask, self.special
        return *read, self.longest

    def estimated_tokens(self, texts: tuple[bytes, ...]) -> int:
        """Estimates a row's number of tokens, at most the model's maximum."""
        guess = estimated_tokens(texts)
        return guess if self.longest is None else min(guess, self.longest)

    async def fill(self) -> None:
        """Reads what the signatures alone do not tell."""
        tasks = find_tasks(self.signatures)
        if counter := tasks.get("tokenize"):
            rows = [(text,) * len(counter.inputs) for text in (b"a " * _MANY_WORDS, b"")]
            if answer := await self._tried(counter, rows, ("input_ids", "lengths")):
                longest, length = map(int, answer["lengths"])
                self.longest = longest if longest < _MANY_WORDS else None
                self.special = frozenset(answer["input_ids"][1, :length].tolist())
        if embed := tasks.get("embed"):
            self.prompts = () if embed.options else None
            if "prompt_name" in embed.options:
                self.prompts = await self._names(embed.asked_with(truncate_left=True), "prompt_names") or None
        if (classify := tasks.get("classify")) and "classes" in classify.outputs:
            # All outputs, as in requests: a server prepares a graph for each choice of outputs.
            self.labels = await self._names(classify, "classes", *classify.outputs, *classify.counts)
        if fill := tasks.get("fill_mask"):
            answer = await self._tried(fill, [(mask,) for mask in _MASKS], ("pieces",))
            known = [mask for mask, pieces in zip(_MASKS, answer.get("pieces", ())) if pieces.size and pieces.flat[0]]
            self.mask = known[0].decode() if known else ""
        self.tasks, self.is_whole = tasks, True

    async def _names(self, task: RowsTask, output: str, *all_outputs: str) -> tuple[str, ...]:
        answer = await self._tried(task, [(b"",) * len(task.inputs)], all_outputs or (output,))
        return tuple(name.decode(errors="replace") for name in answer[output][0]) if answer else ()

    async def _tried(self, task: RowsTask, rows: list, outputs: tuple[str, ...]) -> dict:
        try:
            return await self._ask(task, rows, outputs)
        except ServingError as error:
            if error.code is not grpc.StatusCode.INVALID_ARGUMENT:
                raise
            return {}

    async def run(self, batch: ModelBatch) -> BatchAnswer:
        """Returns the answer to a batch; raises Outdated if the server has another model now."""
        task, counter = batch.key[1], self.tasks.get("tokenize")
        counts = (
            batch.counts and counter is not None and "lengths" not in task.outputs and counter.inputs == task.inputs
        )
        try:
            with request_id(batch.request_id):
                call = self._ask(task, batch.texts, task.outputs + task.counts, batch.timeout_s)
                if counts:
                    count = self._ask(counter, batch.texts, ("lengths", *counter.counts), batch.timeout_s)
                    outputs, counted = await asyncio.gather(call, count)
                else:
                    outputs, counted = await call, None
        except (ServingError, UnreadableAnswer) as error:
            await self._check_failed(error)
            raise
        told = (outputs if "lengths" in task.outputs else counted) or {}
        tokens = told.get("lengths")
        of_texts = told | outputs
        return BatchAnswer(outputs, tokens, {name: of_texts[name] for name in COUNTS if name in of_texts})

    def may_truncate(self, task: RowsTask, rows: list[tuple[bytes, ...]]) -> bool:
        """Returns whether the model might truncate a row; if so, another call to the model has to tell."""
        counter, longest = self.tasks.get("tokenize"), self.longest
        if task.counts or counter is None or not counter.counts or longest is None:
            return False
        return any(sum(map(len, row)) > longest - SPECIAL_TOKENS for row in rows)

    async def _ask(self, task: RowsTask, rows: list, outputs: tuple[str, ...], timeout_s: float | None = None) -> dict:
        answer = await self._call(task.columns(rows), outputs, task.signature, timeout_s)
        if missing := sorted(set(outputs) - answer.keys()):
            raise UnreadableAnswer(f"model '{self.name}' gave no output '{missing[0]}' of '{task.signature}'")
        if any(array.ndim == 0 or len(array) != len(rows) for array in answer.values()):
            raise UnreadableAnswer(
                f"model '{self.name}' gave outputs without one row for each row of '{task.signature}'"
            )
        return answer

    async def _call(self, inputs: dict, outputs: tuple[str, ...], signature: str, timeout_s: float | None) -> dict:
        asked: Any = {"outputs": outputs, "signature": signature, "timeout_s": timeout_s, "version": self.version}
        for _ in range(_NEXT_SERVERS):
            try:
                return await self.client.predict(inputs, **asked)
            except ServingError as error:
                # Calls go in turn to all servers of a name: the next one may have the version still.
                if error.code is not grpc.StatusCode.NOT_FOUND or self.version is None:
                    raise
        return await self.client.predict(inputs, **asked)

    async def _check_failed(self, error: ServingError | UnreadableAnswer) -> None:
        """Raises Outdated if a call may have failed because the server has another model now."""
        self.on_failure()
        if isinstance(error, ServingError):
            if error.code is grpc.StatusCode.NOT_FOUND:
                raise Outdated(self)
            if error.code not in _OF_ANOTHER_MODEL:
                return
        with contextlib.suppress(ServingError):
            if await self.client.described() != (self.version, self.signatures):
                raise Outdated(self)


class Outdated(Refusal):
    """The server has another model than was read: read it again, and begin the request anew."""

    def __init__(self, reading: Reading):
        super().__init__(**vars(gone()))
        self.reading = reading


class ServedModel:
    """A model of a TensorFlow Serving server, read anew every `check_s` seconds.

    `on_change` is called when the model appears, disappears, or changes.
    """

    def __init__(self, connection: Connection, name: str, check_s: float, on_change: Callable[["ServedModel"], None]):
        self.name, self._check_s, self._on_change = name, check_s, on_change
        self._client = AsyncClient(connection, name)
        self._wake, self._looked = asyncio.Event(), asyncio.Event()
        self.error = ""
        # The error for requests while the model is unavailable; None while it is available.
        self.absence: Refusal | None = not_ready(name)
        self.reading = Reading(name, self._client)

    @property
    def live(self) -> bool:
        return self.absence is None

    @property
    def is_missing(self) -> bool:
        return self.absence is not None and self.absence.status == 404

    async def watch(self) -> None:
        """Reads the model regularly; never returns."""
        while True:
            self._wake.clear()
            # Who waits from now on waits for the next look.
            looked, self._looked = self._looked, asyncio.Event()
            await self._look()
            looked.set()
            wait = self._check_s if self.live else min(_DOWN_CHECK_S, self._check_s)
            try:
                await asyncio.wait_for(self._wake.wait(), wait)
                await asyncio.sleep(min(0.1, wait))
            except TimeoutError:
                pass

    async def read_again(self, old: Reading) -> None:
        """Returns when the model was read again, if `old` is what is known of it."""
        if self.reading is old:
            self.wake()
            await self._looked.wait()

    def wake(self) -> None:
        """Requests a look now."""
        self._wake.set()

    async def _look(self) -> None:
        before = self.live, self.reading, self.error
        try:
            reading = await self._read()
            # What is the same is kept.
            if reading.facts != self.reading.facts:
                self.reading = reading
            self.error, self.absence = "", None
        except Exception as error:
            if not isinstance(error, UserError):
                _LOG.exception("model %s", self.name)
            self.error = str(error)
            # A server that has too much to do is not gone: what was known of it holds.
            if not (isinstance(error, ServingError) and is_busy(error)):
                self.absence = unreadable(self.name, error)
        if before != (self.live, self.reading, self.error):
            self._on_change(self)

    async def _read(self) -> Reading:
        for swaps_left in reversed(range(_NEXT_SERVERS)):
            version, signatures = await self._client.described(timeout_s=self._check_s)
            if not self.reading.is_whole:
                self.absence = not_ready(self.name)
            reading = Reading(self.name, self._client, version, signatures, self.wake)
            try:
                await reading.fill()
                return reading
            except ServingError as error:
                # The version went while it was read: another one is there.
                if error.code is not grpc.StatusCode.NOT_FOUND or not (swaps_left or self.reading.is_whole):
                    raise
        return self.reading

    async def close(self) -> None:
        await self._client.close()

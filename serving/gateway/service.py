"""The service behind all routes."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from serving.client import Connection
from serving.client.tasks import TRUNCATED_TOKENS, WITH_OPTIONS, RowsTask
from serving.gateway import tracing
from serving.gateway.errors import Refusal, bad_request, gone
from serving.gateway.keys import Keys
from serving.gateway.metrics import Metrics
from serving.gateway.model import Outdated, Reading, ServedModel
from serving.gateway.routes.bodies import Body, cuts, options_of
from serving.gateway.scheduler import BatchAnswer, Limits, ModelBatch, QueuedRequest, Scheduler
from serving.http_protocol import Room, Share

_LOG = logging.getLogger(__name__)
# An iterator becomes a list in JSON, of one item at a time.
Answer = dict[str, Any] | list | Iterator
# Of a route: it takes the service, a body and a call.
Handler = Callable[["Service", Any, "Call"], Awaitable[Answer]]
# Of one request, because the server has another model than was read.
_MOST_RESTARTS = 3


@dataclass(frozen=True)
class GatewayOptions:
    """The settings of a gateway; see the flags in GatewaySettings.

    `keys`: None if no key is needed.
    """

    connection: Connection
    models: tuple[str, ...]
    keys: Keys | None = None
    limits: Limits = field(default_factory=Limits)
    max_inputs: int = 2048
    max_body_bytes: int = 8 * 2**20
    max_held_bytes: int = 64 * 2**20
    timeout_s: float = 30.0
    check_s: float = 5.0
    root_path: str = ""
    cors_origins: tuple[str, ...] = ()
    access_log: str = ""
    log_bodies: bool = False


@dataclass
class Call:
    """A request in progress.

    Attributes:
        queue_ns: time of its rows in the queue.
        model_ns: time of its rows at the model.
        truncated: number of truncated inputs; None if unknown.
        share: its share of the memory for bodies and answers.
        code: the error's code, or "".
    """

    trace: Any = None
    truncated: int | None = None
    queue_ns: int = 0
    model_ns: int = 0
    share: Share = field(default_factory=lambda: Share(Room(math.inf)))
    body: bytes = b""
    code: str = ""


class Service:
    """The models and their queue; create and close it in the same event loop."""

    def __init__(self, options: GatewayOptions, metrics: Metrics):
        self.options, self.metrics = options, metrics
        turns = asyncio.Lock()
        self.models = {
            name: ServedModel(options.connection, name, options.check_s, self._changed, turns)
            for name in options.models
        }
        self.scheduler = Scheduler(self._run, options.limits, self._count)
        metrics.watch_queue(
            lambda: self.scheduler.queued_rows,
            lambda: self.scheduler.queued_tokens,
            lambda: self.scheduler.in_flight,
        )
        self._watches = [asyncio.create_task(model.watch()) for model in self.models.values()]
        self.started = int(time.time())

    async def close(self) -> None:
        for watch in self._watches:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
        await self.scheduler.close()
        for model in self.models.values():
            await model.close()

    @property
    def live(self) -> bool:
        return all(model.live for model in self.models.values())

    async def answered(self, handler: Handler, body: Any, call: Call) -> Answer:
        """Returns a handler's answer; the handler begins anew if the server has another model than was read."""
        async with asyncio.timeout(self.options.timeout_s):
            for _ in range(_MOST_RESTARTS):
                try:
                    return await handler(self, body, call)
                except Outdated as error:
                    call.share.take_answer(-call.share.answer)
                    await self.models[error.reading.name].read_again(error.reading)
            return await handler(self, body, call)

    def model(self, name: str | None, *wanted: str) -> tuple[Reading, RowsTask]:
        """Returns what is known of the model that answers, and the first of the `wanted` tasks that it has.

        Without a name, the first model with such a task answers.

        Raises:
            Refusal: 404 for an unknown model, 400 for one without the task, 503 if its tasks are not known yet.
        """
        if name is not None and name not in self.models:
            known = ", ".join(self.models)
            raise Refusal(404, f"the model '{name[:100]}' does not exist; there is {known}", "model_not_found")
        asked = list(self.models.values()) if name is None else [self.models[name]]
        for model in asked:
            reading = model.reading
            task = next((reading.tasks[one] for one in wanted if one in reading.tasks), None)
            # The first of several models is only known when the tasks of all are.
            if task and (reading.is_whole or len(wanted) == 1):
                return reading, task
            # No other model replaces it: the same request would go to another model a moment later.
            if not reading.is_whole and (name is not None or not model.is_missing):
                raise model.absence or gone()
        if all(model.is_missing for model in asked):
            raise asked[0].absence or gone()
        can = wanted[0] if len(wanted) == 1 else "answer texts"
        raise bad_request(f"no model here can {can}" if name is None else f"the model '{name}' cannot {can}")

    async def answer(
        self,
        model: Reading,
        task: RowsTask,
        rows: Sequence[str | Sequence[str]],
        call: Call,
        body: Body,
        counts: bool = False,
    ) -> QueuedRequest:
        """Returns the answers of rows, each a text or several, in order.

        Raises:
            Refusal: invalid rows, a full queue, or an unsupported option.
            ServingError: the call failed.
            TimeoutError: after the time limit.
        """
        self.check_count(len(rows))
        task = _with_options(model, task, body)
        try:
            encoded = [tuple(text.encode() for text in ([row] if isinstance(row, str) else row)) for row in rows]
        except UnicodeEncodeError:
            raise bad_request("a text holds half a surrogate pair: it is no Unicode") from None
        if not cuts(body) and not task.signature.endswith(WITH_OPTIONS):
            await self._check_lengths(model, task, encoded, call)
        sizes = [model.estimate.of(row) for row in encoded]
        key, timeout_s = (model, task), self.options.timeout_s
        counts = counts or model.may_truncate(task, encoded)
        work = await self.scheduler.answer(key, encoded, sizes, timeout_s, counts, call.trace, call.share.take_answer)
        _check_numbers(model, work, task)
        if not cuts(body):
            _check_whole(model, work.truncated or ())
        call.queue_ns += work.started_ns - work.queued_ns
        call.model_ns += work.ended_ns - work.started_ns
        call.truncated = None if work.truncated is None else sum(work.truncated)
        self.metrics.queue_seconds.observe((work.started_ns - work.queued_ns) / 1e9)
        tracing.record_waits(call.trace, work.queued_ns, work.started_ns, work.ended_ns)
        return work

    async def _check_lengths(self, model: Reading, task: RowsTask, rows: list, call: Call) -> None:
        counter, longest = model.tasks.get("tokenize"), model.estimate.longest
        if counter is None or counter.inputs != task.inputs or longest is None:
            raise bad_request("truncate=false: this model does not tell the length of texts; leave it out")
        sizes = [model.estimate.of(row) for row in rows]
        key, share = (model, counter), call.share
        work = await self.scheduler.answer(
            key, rows, sizes, self.options.timeout_s, context=call.trace, take=share.take_answer
        )
        share.take_answer(-share.answer)
        # Without a truncation output, a full row counts as truncated.
        _check_whole(model, work.truncated or [count >= longest for count in work.tokens])

    def check_count(self, rows: int) -> None:
        if not rows:
            raise bad_request("there is no text in the request")
        if rows > self.options.max_inputs:
            raise bad_request(f"{rows} inputs are more than the {self.options.max_inputs} of one request")

    async def _run(self, batch: ModelBatch) -> BatchAnswer:
        model, task = batch.key
        return await model.run(task, batch)

    def _count(self, batch: ModelBatch, answer: BatchAnswer, seconds: float) -> None:
        model, task = batch.key
        name, truncated = model.name, answer.counts.get(TRUNCATED_TOKENS)
        if truncated is not None and task != model.tasks.get("tokenize"):
            for count, tokens in answer.counts.items():
                self.metrics.tokens[count].labels(name).inc(int(tokens.sum()))
            self.metrics.text_inputs.labels(name).inc(len(truncated))
            self.metrics.truncated_inputs.labels(name).inc(int((truncated > 0).sum()))
        self.metrics.batch_seconds.labels(name).observe(seconds)
        self.metrics.batch_rows.labels(name).observe(len(batch.rows))
        self.metrics.batch_tokens.labels(name).observe(sum(row.size for row in batch.rows))

    def _changed(self, model: ServedModel) -> None:
        self.metrics.live.labels(model.name).set(model.live)
        reading, state = model.reading, "is busy" if model.live else "is not there"
        if model.error:
            _LOG.warning("model %s %s: %s", model.name, state, model.error)
        else:
            _LOG.info("model %s version %s: %s", model.name, reading.version, ", ".join(reading.tasks) or "no texts")


# What exports of today do with options.
_OPTIONAL = ("embed", "embed_all", "embed_sparse", "classify", "rerank")


def _with_options(model: Reading, task: RowsTask, body: Body) -> RowsTask:
    asked = options_of(body, model.prompts)
    for name, (field_name, value) in asked.items():
        if value and name not in task.options:
            may_have = task.signature != "pair" and task in (model.tasks.get(one) for one in _OPTIONAL)
            newer = ", or export the model again" if may_have and not task.options else ""
            raise bad_request(f"{field_name}: the model '{model.name}' does not follow it here; leave it out{newer}")
        if value and name == "prompt_name" and value not in (model.prompts or ()):
            known = ", ".join(model.prompts or ())
            raise bad_request(f"{field_name}: the model '{model.name}' has no prompt '{value[:50]}'; it has {known}")
    return task.asked_with(**{name: value for name, (_, value) in asked.items() if value})


def _check_whole(model: Reading, too_long: Iterable[bool]) -> None:
    for number, is_too_long in enumerate(too_long):
        if is_too_long:
            longest = model.estimate.longest
            message = f"input {number} does not fit into the model's {longest} tokens; let it be truncated"
            raise Refusal(413, message, "too_long")


# JSON cannot express NaN and infinity.
def _check_numbers(model: Reading, work: QueuedRequest, task: RowsTask) -> None:
    for name in task.outputs:
        for number, row in enumerate(work.rows(name)):
            if np.asarray(row).dtype.kind == "f" and not np.isfinite(row).all():
                message = f"the model '{model.name}' gave NaN or infinity for input {number} ({name})"
                raise Refusal(502, message, "not_a_number")


def best_first(scores: np.ndarray) -> np.ndarray:
    """Returns the indices that sort scores [n] descending; stable."""
    return np.argsort(-scores, kind="stable")

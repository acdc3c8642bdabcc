"""The models behind all routes, and a request in progress."""

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from serving.client import Connection
from serving.client.tasks import TRUNCATED_TOKENS, RowsTask
from serving.gateway.errors import Refusal, bad_request, gone
from serving.gateway.model import Outdated, Reading, ServedModel
from serving.gateway.routes.bodies import Body
from serving.gateway.scheduler import BatchAnswer, ModelBatch, QueuedRequest, Scheduler
from serving.gateway.settings import GatewayOptions
from serving.http_protocol import Share

_LOG = logging.getLogger(__name__)
# An iterator becomes a list in JSON, of one item at a time.
Answer = dict[str, Any] | list | Iterator
# Of a route: it takes a call and a body.
Handler = Callable[["Call", Any], Awaitable[Answer]]
# Of one request, because the server has another model than was read.
_MOST_RESTARTS = 3
# Of metrics for Prometheus.
_SECONDS = {"buckets": [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30]}
_POWERS = {"buckets": [2.0**n for n in range(17)]}
_MODEL = ["model"]
# By output of a model (serving.client.tasks.COUNTS).
_TOKENS = {
    "text_tokens": "Tokens of texts to models that report truncation.",
    "truncated_tokens": "Those of them that the model did not read.",
    "unknown_tokens": "Unknown tokens among those that the model read.",
}


class Metrics:
    """A gateway's counters, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = {"namespace": "gateway", "registry": self.registry}
        counter, gauge, seconds, powers = (
            functools.partial(kind, **own, **more)
            for kind, more in ((Counter, {}), (Gauge, {}), (Histogram, _SECONDS), (Histogram, _POWERS))
        )
        self.requests = counter("requests", "Requests, by route and HTTP status.", ["route", "status"])
        self.seconds = seconds("request_seconds", "From a request's headers to its answer.", ["route"])
        self.queue_seconds = seconds("queue_seconds", "A request's wait for its first batch.")
        self.batch_seconds = seconds("batch_seconds", "A batch's time at the model server.", _MODEL)
        self.batch_rows = powers("batch_rows", "Rows of a batch.", _MODEL)
        self.batch_tokens = powers("batch_tokens", "Tokens of a batch, as guessed.", _MODEL)
        self.tokens = {name: counter(name, text, _MODEL) for name, text in _TOKENS.items()}
        self.text_inputs = counter("text_inputs", "Texts to models that report truncation.", _MODEL)
        self.truncated_inputs = counter(
            "truncated_inputs", "Texts that were cut to the longest row of the model.", _MODEL
        )
        self.live = gauge("model_live", "1 while the server has the model.", _MODEL)
        self.queue_rows = gauge("queue_rows", "Rows that wait.")
        self.queue_tokens = gauge("queue_tokens", "Tokens that wait, as guessed.")
        self.in_flight = gauge("batches_in_flight", "Batches at the model server.")

    def page(self) -> bytes:
        return generate_latest(self.registry)


class Service:
    """The models and their queue; create and close it in the same event loop."""

    def __init__(
        self,
        connection: Connection,
        models: Sequence[str],
        options: GatewayOptions,
        metrics: Metrics,
    ):
        self.options, self.metrics = options, metrics
        self.models = {name: ServedModel(connection, name, options.check_s, self._changed) for name in models}
        self.scheduler = queue = Scheduler(lambda batch: batch.key[0].run(batch), options, self._count)
        metrics.queue_rows.set_function(lambda: queue.queued_rows)
        metrics.queue_tokens.set_function(lambda: queue.queued_tokens)
        metrics.in_flight.set_function(lambda: queue.in_flight)
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
            tasks = model.reading.tasks
            if task := next((tasks[one] for one in wanted if one in tasks), None):
                return model.reading, task
            # No other model replaces it: the same request would go to another model a moment later.
            if not model.reading.is_whole and (name is not None or not model.is_missing):
                raise model.absence or gone()
        if all(model.is_missing for model in asked):
            raise asked[0].absence or gone()
        can = wanted[0] if len(wanted) == 1 else "answer texts"
        raise bad_request(f"no model here can {can}" if name is None else f"the model '{name}' cannot {can}")

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
            _LOG.info(
                "model %s version %s is ready: %s", model.name, reading.version, ", ".join(reading.tasks) or "no texts"
            )


class Call:
    """A request in progress.

    Attributes:
        share: its share of the memory for bodies and answers.
        queue_ns: time of its rows in the queue.
        model_ns: time of its rows at the model.
        truncated: number of truncated inputs; None if unknown.
        code: the error's code, or "".
    """

    truncated: int | None = None
    queue_ns = model_ns = 0
    body, code = b"", ""

    def __init__(self, service: Service, share: Share):
        self.service, self.share = service, share

    async def answered(self, handler: Handler, body: Any) -> Answer:
        """Returns a handler's answer; the handler begins anew if the server has another model than was read."""
        async with asyncio.timeout(self.service.options.timeout_s):
            for _ in range(_MOST_RESTARTS):
                try:
                    return await handler(self, body)
                except Outdated as error:
                    self.share.take_answer(-self.share.answer)
                    await self.service.models[error.reading.name].read_again(error.reading)
            return await handler(self, body)

    async def ask(
        self,
        body: Body,
        kind: str,
        rows: Sequence[str | Sequence[str]] | Callable[[RowsTask], Sequence],
        counts: bool = False,
    ) -> QueuedRequest:
        """Returns the answers of the model that `body` names to rows, each a text or several, in order.

        Args:
            body: names the model, and its options.
            kind: the task.
            rows: or a function that makes them for the model's task.
            counts: whether tokens are counted.

        Raises:
            Refusal: invalid rows, a full queue, or an unsupported option.
            ServingError: the call failed.
            TimeoutError: after the time limit.
        """
        service = self.service
        model, task = service.model(body.model, kind)
        rows = rows(task) if callable(rows) else rows
        self.check_count(len(rows))
        task = _with_options(model, task, body)
        try:
            encoded = [tuple(text.encode() for text in ([row] if isinstance(row, str) else row)) for row in rows]
        except UnicodeEncodeError:
            raise bad_request("a text holds half a surrogate pair: it is no Unicode") from None
        counts = counts or not body.cuts or model.may_truncate(task, encoded)
        work = await service.scheduler.answer(
            (model, task),
            encoded,
            [model.estimated_tokens(row) for row in encoded],
            service.options.timeout_s,
            counts,
            self.share.take_answer,
        )
        _check_numbers(work)
        if not body.cuts:
            _check_whole(work)
        self.queue_ns += work.started_ns - work.queued_ns
        self.model_ns += work.ended_ns - work.started_ns
        self.truncated = None if work.truncated is None else sum(work.truncated)
        service.metrics.queue_seconds.observe((work.started_ns - work.queued_ns) / 1e9)
        return work

    def check_count(self, rows: int) -> None:
        if not rows:
            raise bad_request("there is no text in the request")
        if rows > (most := self.service.options.max_inputs):
            raise bad_request(f"{rows} inputs are more than the {most} of one request")


def _with_options(model: Reading, task: RowsTask, body: Body) -> RowsTask:
    asked = body.options(model.prompts)
    for name, (field_name, value) in asked.items():
        if value and name not in task.options:
            raise bad_request(f"{field_name}: the model '{model.name}' does not follow it here; leave it out")
        if value and name == "prompt_name" and value not in (model.prompts or ()):
            known = ", ".join(model.prompts or ())
            raise bad_request(f"{field_name}: the model '{model.name}' has no prompt '{value[:50]}'; it has {known}")
    return task.asked_with(**{name: value for name, (_, value) in asked.items() if value})


def _check_whole(work: QueuedRequest) -> None:
    if work.truncated is None:
        raise bad_request("truncate=false: this model does not tell the length of texts; leave it out")
    if any(work.truncated):
        number, longest = work.truncated.index(True), work.model.longest
        message = f"input {number} does not fit into the model's {longest} tokens; let it be truncated"
        raise Refusal(413, message, "too_long")


# JSON cannot express NaN and infinity.
def _check_numbers(work: QueuedRequest) -> None:
    for name in work.task.outputs:
        for number, row in enumerate(work.rows(name)):
            if np.asarray(row).dtype.kind == "f" and not np.isfinite(row).all():
                message = f"the model '{work.model.name}' gave NaN or infinity for input {number} ({name})"
                raise Refusal(502, message, "not_a_number")


def best_first(scores: np.ndarray) -> np.ndarray:
    """Returns the indices that sort scores [n] descending; stable."""
    return np.argsort(-scores, kind="stable")

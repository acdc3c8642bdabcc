"""The methods of both clients, as coroutines; on a blocking channel they need no event loop."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import Message

from serving.client import messages, tasks
from serving.client.channel import Connection
from serving.client.errors import ServingError
from serving.client.messages import Arrays, Signature, VersionStatus, read_metadata, read_status
from serving.client.tracing import trace_headers
from serving.wire import protos
from serving.wire.request_id import HEADER, current
from serving.wire.tensors import Value, as_array
from tfrecords.base.columns import items, strings
from tfrecords.base.errors import UserError

# Limits for a request in parts. A part is sent again if its server lacks the version that answered the first part:
# calls go in turn to all servers of a name. After that, all parts are sent again, to another version.
_MOST_REPEATS, _MOST_RESTARTS = 3, 3


class ClientBase:
    """Calls one model of a server; a client's method NAME runs `_NAME`."""

    def __init__(
        self,
        target: str | Connection,
        model: str,
        *,
        version: int | None = None,
        label: str | None = None,
        signature: str = "serving_default",
        timeout_s: float = 30.0,
        max_batch_rows: int | None = None,
    ):
        """Sets the model and how to call it.

        Args:
            target: HOST:PORT, or a Connection for TLS, compression and retries.
            model: its name.
            version: None for the newest.
            label: a version label instead of a version.
            signature: the signature to call.
            timeout_s: seconds per call, retries included.
            max_batch_rows: larger requests are split. None: the limit that a server states when it refuses a request.

        Raises:
            UserError: `max_batch_rows` is below 1.
        """
        if max_batch_rows is not None and max_batch_rows < 1:
            raise UserError(f"max_batch_rows is {max_batch_rows}; it must be at least 1")
        self.connection = target if isinstance(target, Connection) else Connection(target)
        self.model, self.version, self.label = model, version, label
        self.signature_name, self.timeout_s, self.max_batch_rows = signature, timeout_s, max_batch_rows
        self._known_signature: Signature | None = None
        self._tasks: dict[str, tasks.RowsTask] = {}

    def _stubs(self, channel: grpc.Channel) -> None:
        def stub(method: str, request_type: Any, response_type: Any) -> Callable:
            return channel.unary_unary(method, request_type.SerializeToString, response_type.FromString)

        self._predict_stub = stub(protos.PREDICT, protos.PredictRequest, protos.PredictResponse)
        self._metadata_stub = stub(
            protos.GET_MODEL_METADATA, protos.GetModelMetadataRequest, protos.GetModelMetadataResponse
        )
        self._status_stub = stub(protos.GET_MODEL_STATUS, protos.GetModelStatusRequest, protos.GetModelStatusResponse)

    async def _call(self, stub: Callable, request: Message, timeout_s: float | None) -> Any:
        limit = self.timeout_s if timeout_s is None else timeout_s
        try:
            answer = stub(request, timeout=limit, metadata=((HEADER, current()), *trace_headers()))
            return await answer if isinstance(answer, Awaitable) else answer
        except grpc.RpcError as error:
            raise ServingError.of(error, self.connection.target, current()) from None

    def request(
        self, inputs: Mapping[str, Value], outputs: Sequence[str] = (), signature: str | None = None
    ) -> protos.PredictRequest:
        return messages.predict_request(
            inputs, self.model, self.version, self.label, signature or self.signature_name, outputs
        )

    async def _predict(
        self,
        inputs: Mapping[str, Value],
        *,
        outputs: Sequence[str] = (),
        signature: str | None = None,
        timeout_s: float | None = None,
    ) -> Arrays:
        """Returns the output arrays by name. `inputs` maps names to arrays, lists, scalars or str (as UTF-8).

        Too many rows become several requests to one version.

        `outputs`: names of outputs, empty for all. `timeout_s` limits the whole call.
        """
        end = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        arrays = {name: as_array(value) for name, value in inputs.items()}
        rows = messages.count_rows(arrays)
        if rows is None or self.max_batch_rows is None or rows <= self.max_batch_rows:
            try:
                request = self.request(arrays, outputs, signature)
                return messages.read_prediction(await self._call(self._predict_stub, request, timeout_s))
            except ServingError as error:
                if rows is None or not self._takes_fewer_rows(error, rows):
                    raise
        return await self._predict_in_parts(arrays, rows, outputs, signature, end)

    async def _predict_in_parts(
        self, arrays: Arrays, rows: int, outputs: Sequence[str], signature: str | None, end: float
    ) -> Arrays:
        parts: list[Arrays] = []
        numbers: list[np.ndarray] = []
        done, version, repeats, restarts = 0, self.version, 0, 0
        while done < rows:
            some = np.arange(done, min(done + (self.max_batch_rows or rows), rows))
            request = messages.predict_request(
                {name: array[done : done + len(some)] for name, array in arrays.items()},
                self.model,
                version,
                self.label if version is None else None,
                signature or self.signature_name,
                outputs,
            )
            try:
                response = await self._call(self._predict_stub, request, max(end - time.monotonic(), 0.001))
            except ServingError as error:
                if self._takes_fewer_rows(error, len(some)):
                    continue
                if error.code is not grpc.StatusCode.NOT_FOUND or not parts:
                    raise
                if repeats < _MOST_REPEATS:
                    repeats += 1
                    continue
                if restarts == _MOST_RESTARTS:
                    raise
                # The version that answered the first parts was unloaded.
                parts, numbers = [], []
                done, version, repeats, restarts = 0, self.version, 0, restarts + 1
                continue
            if response.model_spec.HasField("version"):
                version = response.model_spec.version.value
            parts.append(messages.read_prediction(response))
            numbers.append(some)
            done, repeats = done + len(some), 0
        return messages.join_batches(parts, numbers)

    def _takes_fewer_rows(self, error: ServingError, rows: int) -> bool:
        limit = error.max_rows
        if not limit or limit >= rows:
            return False
        self.max_batch_rows = min(limit, self.max_batch_rows or limit)
        return True

    async def _described(self, timeout_s: float | None = None) -> tuple[int, dict[str, Signature]]:
        request = protos.GetModelMetadataRequest(metadata_field=["signature_def"])
        messages.fill_model_spec(request.model_spec, self.model, self.version, self.label)
        return read_metadata(await self._call(self._metadata_stub, request, timeout_s))

    async def _metadata(self) -> dict[str, Signature]:
        """Returns the model's signatures by name."""
        return (await self._described())[1]

    async def _served_version(self, *, timeout_s: float | None = None) -> int:
        """Returns the version that answers now."""
        return (await self._described(timeout_s))[0]

    async def _status(self) -> list[VersionStatus]:
        """Returns the model's versions, newest first, including ended and failed ones."""
        request = protos.GetModelStatusRequest()
        # Without a version the server lists them all; labels it ignores here.
        messages.fill_model_spec(request.model_spec, self.model, self.version)
        return read_status(await self._call(self._status_stub, request, None))

    async def _signature(self) -> Signature:
        """Returns the inputs and outputs of the client's signature; asks the server once."""
        if self._known_signature is None:
            signatures = await self._metadata()
            if self.signature_name not in signatures:
                raise UserError(
                    f"model '{self.model}' has no signature '{self.signature_name}'; it has {', '.join(signatures)}"
                )
            self._known_signature = signatures[self.signature_name]
        return self._known_signature

    async def _predict_ids(
        self,
        rows: Iterable[Iterable[int]],
        segments: Iterable[Iterable[int]] | None = None,
        *,
        batch_size: int | None = None,
        length_buckets: Sequence[int] = (),
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Arrays:
        """Returns the answers to rows of token ids of any lengths, in order.

        Args:
            rows: token ids.
            segments: segment ids of each row, by default 0.
            batch_size: rows per call, of similar length; None: all.
            length_buckets: lengths to pad to; empty: the longest row's.
            outputs: names; empty for all.
            timeout_s: seconds per call.
        """
        signature = await self._signature()
        rows = messages.id_rows(rows, "rows")
        segments = None if segments is None else messages.id_rows(segments, "segments")
        numbers = list(messages.batches([len(row) for row in rows], batch_size))
        calls = []
        for batch in numbers:
            batch_segments = None if segments is None else [segments[i] for i in batch]
            calls.append(messages.ids_inputs(signature, [rows[i] for i in batch], batch_segments, length_buckets))
        return await self._joined(numbers, calls, outputs, None, timeout_s)

    async def _predict_text(
        self,
        texts: Iterable[str],
        *,
        batch_size: int | None = None,
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Arrays:
        """Returns the answers to texts, in order; arguments are those of `predict_ids`."""
        signature = await self._signature()
        texts = strings(texts, "texts")
        numbers = list(messages.batches([len(text) for text in texts], batch_size))
        calls = [messages.text_inputs(signature, [texts[i] for i in batch]) for batch in numbers]
        return await self._joined(numbers, calls, outputs, None, timeout_s)

    async def _joined(
        self,
        numbers: Sequence[np.ndarray],
        calls: Sequence[Mapping[str, Value]],
        outputs: Sequence[str],
        signature: str | None,
        timeout_s: float | None,
    ) -> Arrays:
        parts = []
        for inputs in calls:
            parts.append(await self._predict(inputs, outputs=outputs, signature=signature, timeout_s=timeout_s))
        return messages.join_batches(parts, numbers)

    async def _embed(
        self,
        texts: Iterable[str],
        *,
        prompt_name: str = "",
        truncate_left: bool = False,
        max_batch_tokens: int = 4096,
        timeout_s: float | None = None,
    ) -> np.ndarray:
        """Returns vectors of texts, float32 [texts, size], in order.

        Args:
            texts: any number.
            prompt_name: name of the exported prompt before each text; "": the default prompt.
            truncate_left: whether too long texts lose their beginning.
            max_batch_tokens: estimated tokens per call; texts of similar length share a call.
            timeout_s: seconds per call.

        Raises:
            UserError: the model does not embed single texts, or lacks an option.
        """
        task, answer = await self._answer(
            "embed", texts, max_batch_tokens, timeout_s, prompt_name=prompt_name, truncate_left=truncate_left
        )
        return tasks.vectors_of(task, answer)

    async def _rerank(
        self,
        query: str,
        texts: Iterable[str],
        *,
        truncate_left: bool = False,
        max_batch_tokens: int = 4096,
        timeout_s: float | None = None,
    ) -> np.ndarray:
        """Returns how well each text answers the query, float32 [texts], 0 to 1, in order; for models of text pairs.

        The score is a two-class classifier's probability of class 1, or the logistic function of a regressor's value.
        Other arguments are those of `embed`.
        """
        pairs = [(query, text) for text in items(texts, "texts")]
        _, answer = await self._answer("rerank", pairs, max_batch_tokens, timeout_s, truncate_left=truncate_left)
        return tasks.relevance(tasks.raw_scores(answer))

    async def _classify(
        self,
        texts: Iterable,
        *,
        truncate_left: bool = False,
        max_batch_tokens: int = 4096,
        timeout_s: float | None = None,
    ) -> Arrays:
        """Returns the texts' `label`, `logits` and `probabilities`, or `value` of a regressor, in order.

        For a model of pairs, `texts` is a list of (first, second). Other arguments are those of `embed`.
        """
        _, answer = await self._answer("classify", texts, max_batch_tokens, timeout_s, truncate_left=truncate_left)
        return answer

    async def _answer(
        self, kind: str, rows: Iterable, max_batch_tokens: int, timeout_s: float | None, **options: str | bool
    ) -> tuple[tasks.RowsTask, Arrays]:
        task = self._tasks.get(kind) or self._find_task(kind, await self._metadata())
        encoded = tasks.encode_rows(rows, len(task.inputs))
        sizes = [tasks.estimated_tokens(row) for row in encoded]
        numbers = list(messages.token_batches(sizes, max_batch_tokens))
        asked = task.asked_with(**options)
        calls = [asked.columns([encoded[i] for i in batch]) for batch in numbers]
        return task, await self._joined(numbers, calls, task.outputs, asked.signature, timeout_s)

    def _find_task(self, kind: str, signatures: dict[str, Signature]) -> tasks.RowsTask:
        task = tasks.find_tasks(signatures).get(kind)
        if task is None:
            raise UserError(f"model '{self.model}' gives no {_GIVEN[kind]}; its signatures are {', '.join(signatures)}")
        return self._tasks.setdefault(kind, task)


# The message for a model without the task of a method.
_GIVEN = {"embed": "embedding of a text", "rerank": "score of pairs", "classify": "class of a text"}

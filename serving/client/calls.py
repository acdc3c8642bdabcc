"""The methods of both clients, as coroutines; on a blocking channel they need no event loop."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import Message

from serving.client import messages, tasks
from serving.client.channel import PINGED_CALL_S, Connection
from serving.client.errors import ServingError
from serving.client.messages import Arrays, Signature, VersionStatus, read_metadata, read_status
from serving.wire import protos
from serving.wire.request_id import HEADER, current
from serving.wire.tensors import Value, as_array
from tfrecords.base.columns import batches, items, strings
from tfrecords.base.errors import UserError

# Limits for a request in parts. A part is sent again if its server lacks the version that answered the first part:
# calls go in turn to all servers of a name. After that, all parts are sent again, to another version.
_MOST_REPEATS, _MOST_RESTARTS = 3, 3
# So a server refuses a request that was made for other signatures.
_OF_ANOTHER_MODEL = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION)


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
        # What the model told last: its version and its signatures.
        self._read: tuple[int | None, dict[str, Signature]] | None = None

    def _open(self, open_channel: Callable[[bool], Any]) -> None:
        # One for calls that end before a server takes offence at pings, one for all others.
        self._channels = [open_channel(True), open_channel(False)]

        def stub(method: str, request_type: Any, response_type: Any) -> Callable:
            calls = [one.unary_unary(method, request_type.SerializeToString, response_type.FromString)
                     for one in self._channels]  # fmt: skip
            return lambda request, timeout, **more: calls[timeout > PINGED_CALL_S](request, timeout=timeout, **more)

        self._predict_stub = stub(protos.PREDICT, protos.PredictRequest, protos.PredictResponse)
        self._metadata_stub = stub(
            protos.GET_MODEL_METADATA, protos.GetModelMetadataRequest, protos.GetModelMetadataResponse
        )
        self._status_stub = stub(protos.GET_MODEL_STATUS, protos.GetModelStatusRequest, protos.GetModelStatusResponse)

    async def _call(self, stub: Callable, request: Message, timeout_s: float | None) -> Any:
        limit = self.timeout_s if timeout_s is None else timeout_s
        try:
            answer = stub(request, timeout=limit, metadata=((HEADER, current()),))
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
        version: int | None = None,
    ) -> Arrays:
        """Returns the output arrays by name. `inputs` maps names to arrays, lists, scalars or str (as UTF-8).

        Too many rows become several requests to one version.

        `outputs`: names of outputs, empty for all. `timeout_s` limits the whole call. `version` replaces the client's.
        """
        arrays = {name: as_array(value) for name, value in inputs.items()}
        rows = np.arange(messages.count_rows(arrays) or 0)
        parts, _ = await self._by_one_version(_Calls([rows], [arrays], outputs, signature), timeout_s, version)
        return parts[0][1] if len(parts) == 1 else _joined(parts)

    async def _by_one_version(
        self, calls: "_Calls", timeout_s: float | None, asked: int | None = None
    ) -> tuple[list["_Part"], int | None]:
        """Returns the answers to calls, all by the version that answers the first, and that version.

        `timeout_s` limits each call, in parts or whole. `asked` replaces the client's version.
        """
        limit = self.timeout_s if timeout_s is None else timeout_s
        asked = self.version if asked is None else asked
        left, parts, version = calls.pairs(), list[_Part](), asked
        repeats, restarts, end = 0, 0, time.monotonic() + limit
        while left:
            rows, arrays = left[0]
            size = min(len(rows), self.max_batch_rows or len(rows))
            request = messages.predict_request(
                arrays if size == len(rows) else {name: array[:size] for name, array in arrays.items()},
                self.model,
                version,
                self.label if version is None else None,
                calls.signature or self.signature_name,
                calls.outputs,
            )
            try:
                response = await self._call(self._predict_stub, request, max(end - time.monotonic(), 0.001))
            except ServingError as error:
                if self._takes_fewer_rows(error, size):
                    continue
                if error.code is not grpc.StatusCode.NOT_FOUND or not parts:
                    raise
                if repeats < _MOST_REPEATS:
                    repeats += 1
                    continue
                if restarts == _MOST_RESTARTS:
                    raise
                # The version that answered the first parts was unloaded.
                left, parts, version = calls.pairs(), [], asked
                repeats, restarts = 0, restarts + 1
                continue
            if response.model_spec.HasField("version"):
                version = response.model_spec.version.value
            parts.append((rows[:size], messages.read_prediction(response)))
            repeats = 0
            if size < len(rows):
                left[0] = rows[size:], {name: array[size:] for name, array in arrays.items()}
            else:
                left.pop(0)
                end = time.monotonic() + limit
        return parts, version

    def _takes_fewer_rows(self, error: ServingError, rows: int) -> bool:
        limit = error.max_rows
        if not limit or limit >= rows:
            return False
        self.max_batch_rows = min(limit, self.max_batch_rows or limit)
        return True

    async def _described(self, *, timeout_s: float | None = None) -> tuple[int | None, dict[str, Signature]]:
        """Returns the version that answers now (None: the server does not tell), and its signatures by name."""
        request = protos.GetModelMetadataRequest(metadata_field=["signature_def"])
        messages.fill_model_spec(request.model_spec, self.model, self.version, self.label)
        return read_metadata(await self._call(self._metadata_stub, request, timeout_s))

    async def _metadata(self) -> dict[str, Signature]:
        """Returns the model's signatures by name."""
        return (await self._described())[1]

    async def _served_version(self) -> int:
        """Returns the version that answers now."""
        return (await self._described())[0] or 0

    async def _status(self) -> list[VersionStatus]:
        """Returns the model's versions, newest first, including ended and failed ones."""
        request = protos.GetModelStatusRequest()
        # Without a version the server lists them all; labels it ignores here.
        messages.fill_model_spec(request.model_spec, self.model, self.version)
        return read_status(await self._call(self._status_stub, request, None))

    async def _signature(self) -> Signature:
        """Returns the inputs and outputs of the client's signature, as the server has it now."""
        return self.signature_in(await self._metadata())

    def signature_in(self, signatures: dict[str, Signature]) -> Signature:
        """Returns the client's signature out of all; raises UserError if it is not there."""
        if self.signature_name not in signatures:
            raise UserError(
                f"model '{self.model}' has no signature '{self.signature_name}'; it has {', '.join(signatures)}"
            )
        return signatures[self.signature_name]

    async def _by_signatures(self, make: Callable[[dict[str, Signature]], "_Calls"], timeout_s: float | None) -> Arrays:
        """Returns the answer to the calls that `make` makes from the model's signatures.

        Signatures are read once, and again when another version answers, or none can: the model may be another.
        """
        for _ in range(_MOST_RESTARTS):
            version, signatures = self._read = self._read or await self._described(timeout_s=timeout_s)
            failed = None
            try:
                parts, answering = await self._by_one_version(make(signatures), timeout_s)
                if answering == version:
                    break
            except UserError as error:
                if isinstance(error, ServingError) and error.code not in _OF_ANOTHER_MODEL:
                    raise
                failed = error
            self._read = await self._described(timeout_s=timeout_s)
            if self._read[1] == signatures:
                break
        if failed:
            raise failed
        return _joined(parts)

    async def _predict_ids(
        self,
        rows: Iterable[Iterable[int]],
        segments: Iterable[Iterable[int]] | None = None,
        *,
        batch_size: int | None = None,
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Arrays:
        """Returns the answers to rows of token ids of any lengths, in order.

        Args:
            rows: token ids.
            segments: segment ids of each row, by default 0.
            batch_size: rows per call, of similar length; None: all.
            outputs: names; empty for all.
            timeout_s: seconds per call.
        """
        rows = messages.id_rows(rows, "rows")
        segments = None if segments is None else messages.id_rows(segments, "segments")

        def inputs(signature: Signature, batch: np.ndarray) -> Arrays:
            of_batch = None if segments is None else [segments[i] for i in batch]
            return messages.ids_inputs(signature, [rows[i] for i in batch], of_batch)

        return await self._by_length(rows, batch_size, inputs, outputs, timeout_s)

    async def _by_length(
        self, rows: list, batch_size: int | None, inputs: Callable, outputs: Sequence[str], timeout_s: float | None
    ) -> Arrays:
        numbers = list(batches([len(row) for row in rows], max_rows=batch_size))

        def make(signatures: dict[str, Signature]) -> _Calls:
            signature = self.signature_in(signatures)
            return _Calls(numbers, [inputs(signature, batch) for batch in numbers], outputs)

        return await self._by_signatures(make, timeout_s)

    async def _predict_text(
        self,
        texts: Iterable[str],
        *,
        batch_size: int | None = None,
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Arrays:
        """Returns the answers to texts, in order; arguments are those of `predict_ids`."""
        texts = strings(texts, "texts")

        def inputs(signature: Signature, batch: np.ndarray) -> Arrays:
            return messages.text_inputs(signature, [texts[i] for i in batch])

        return await self._by_length(texts, batch_size, inputs, outputs, timeout_s)

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
        answer = await self._answer(
            "embed", texts, max_batch_tokens, timeout_s, prompt_name=prompt_name, truncate_left=truncate_left
        )
        (vectors,) = answer.values()
        return vectors

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
        answer = await self._answer("rerank", pairs, max_batch_tokens, timeout_s, truncate_left=truncate_left)
        return tasks.relevance(tasks.raw_scores(answer))

    async def _classify(
        self,
        texts: Iterable,
        *,
        truncate_left: bool = False,
        max_batch_tokens: int = 4096,
        timeout_s: float | None = None,
    ) -> Arrays:
        """Returns the texts' `label`, `classes`, `logits` and `probabilities`, or `value` of a regressor, in order.

        `classes` [texts, classes] are the names of the columns.

        For a model of pairs, `texts` is a list of (first, second). Other arguments are those of `embed`.
        """
        return await self._answer("classify", texts, max_batch_tokens, timeout_s, truncate_left=truncate_left)

    async def _answer(
        self, kind: str, rows: Iterable, max_batch_tokens: int, timeout_s: float | None, **options: str | bool
    ) -> Arrays:
        rows = items(rows, "texts")

        def make(signatures: dict[str, Signature]) -> _Calls:
            task = tasks.find_tasks(signatures).get(kind)
            if task is None:
                names = ", ".join(signatures)
                raise UserError(f"model '{self.model}' gives no {_GIVEN[kind]}; its signatures are {names}")
            encoded = tasks.encode_rows(rows, len(task.inputs))
            sizes = [tasks.estimated_tokens(row) for row in encoded]
            numbers = list(batches(sizes, max_batch_tokens, messages.MAX_ROWS))
            asked = task.asked_with(**options)
            calls = [asked.columns([encoded[i] for i in batch]) for batch in numbers]
            return _Calls(numbers, calls, task.outputs, asked.signature)

        return await self._by_signatures(make, timeout_s)


# The places of some rows, and the answer to them.
_Part = tuple[np.ndarray, Arrays]


def _joined(parts: list[_Part]) -> Arrays:
    return messages.join_batches([answer for _, answer in parts], [rows for rows, _ in parts])


@dataclass(frozen=True)
class _Calls:
    """The requests of one answer: `rows` are the places of each one's rows in the answer."""

    rows: Sequence[np.ndarray]
    inputs: Sequence[Arrays]
    outputs: Sequence[str] = ()
    signature: str | None = None

    def pairs(self) -> list[_Part]:
        return list(zip(self.rows, self.inputs, strict=True))


# The message for a model without the task of a method.
_GIVEN = {"embed": "embedding of a text", "rerank": "score of pairs", "classify": "class of a text"}

"""The two clients, blocking and asyncio: the same methods, the latter's awaited."""

from collections.abc import Callable, Mapping, Sequence
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
from serving.wire.tensors import Value
from tfrecords.base.errors import UserError


class ClientBase:
    """What the blocking and the asyncio client share: which model, and messages in and out."""

    def __init__(
        self,
        target: str | Connection,
        model: str,
        *,
        version: int | None = None,
        label: str | None = None,
        signature: str = "serving_default",
        timeout_s: float = 30.0,
    ):
        """`target`: HOST:PORT, or a Connection for TLS, compression and retries.

        `timeout_s`: seconds one call may take, retries included.
        """
        self.connection = target if isinstance(target, Connection) else Connection(target)
        self.model, self.version, self.label = model, version, label
        self.signature_name, self.timeout_s = signature, timeout_s
        self._signature: Signature | None = None
        self._tasks: dict[str, tasks.Task] = {}

    def _stubs(self, channel: grpc.Channel) -> None:
        def stub(method: str, request_type: Any, response_type: Any) -> Callable:
            return channel.unary_unary(method, request_type.SerializeToString, response_type.FromString)

        self._predict = stub(protos.PREDICT, protos.PredictRequest, protos.PredictResponse)
        self._metadata = stub(
            protos.GET_MODEL_METADATA, protos.GetModelMetadataRequest, protos.GetModelMetadataResponse
        )
        self._status = stub(protos.GET_MODEL_STATUS, protos.GetModelStatusRequest, protos.GetModelStatusResponse)

    def request(
        self, inputs: Mapping[str, Value], outputs: Sequence[str] = (), signature: str | None = None
    ) -> protos.PredictRequest:
        """The message that predict() would send."""
        return messages.predict_request(
            inputs, self.model, self.version, self.label, signature or self.signature_name, outputs
        )

    def _metadata_request(self) -> protos.GetModelMetadataRequest:
        request = protos.GetModelMetadataRequest(metadata_field=["signature_def"])
        messages.fill_model_spec(request.model_spec, self.model, self.version, self.label)
        return request

    def _status_request(self) -> protos.GetModelStatusRequest:
        request = protos.GetModelStatusRequest()
        # Without a version the server lists them all; labels it ignores here.
        messages.fill_model_spec(request.model_spec, self.model, self.version)
        return request

    def _choose_signature(self, signatures: dict[str, Signature]) -> Signature:
        if self.signature_name not in signatures:
            raise UserError(
                f"model '{self.model}' has no signature '{self.signature_name}'; it has {', '.join(signatures)}"
            )
        self._signature = signatures[self.signature_name]
        return self._signature

    @staticmethod
    def _split_ids(
        signature: Signature,
        rows: Sequence[Sequence[int]],
        segments: Sequence[Sequence[int]] | None,
        batch_size: int | None,
        length_buckets: Sequence[int],
    ) -> tuple[list[np.ndarray], list]:
        """Row numbers and inputs of each call."""
        numbers = list(messages.batches([len(row) for row in rows], batch_size))
        calls = []
        for batch in numbers:
            batch_segments = None if segments is None else [segments[i] for i in batch]
            calls.append(messages.ids_inputs(signature, [rows[i] for i in batch], batch_segments, length_buckets))
        return numbers, calls

    @staticmethod
    def _split_text(
        signature: Signature, texts: Sequence[str | bytes], batch_size: int | None
    ) -> tuple[list[np.ndarray], list]:
        tasks.check_texts(texts)
        numbers = list(messages.batches([len(text) for text in texts], batch_size))
        return numbers, [messages.text_inputs(signature, [texts[i] for i in batch]) for batch in numbers]

    def _find_task(self, kind: str, signatures: dict[str, Signature]) -> tasks.Task:
        find, gives = _TASKS[kind]
        task = find(signatures)
        if task is None:
            raise UserError(f"model '{self.model}' gives no {gives}; its signatures are {', '.join(signatures)}")
        return self._tasks.setdefault(kind, task)

    @staticmethod
    def _split_rows(task: tasks.Task, rows: Sequence, max_batch_tokens: int) -> tuple[list[np.ndarray], list[Arrays]]:
        encoded = tasks.encode_rows(rows, len(task.inputs))
        sizes = [tasks.estimated_tokens(row) for row in encoded]
        numbers = list(messages.token_batches(sizes, max_batch_tokens))
        return numbers, [task.columns([encoded[i] for i in batch]) for batch in numbers]


# What each method needs, and what a model without it lacks.
_TASKS = {
    "embed": (tasks.embedding_task, "embedding of a text"),
    "rerank": (tasks.scores_task, "score of pairs"),
    "classify": (tasks.classes_task, "class of a text"),
}


class Client(ClientBase):
    """Calls one model of a TensorFlow Serving server over gRPC; one connection, kept open, safe to share by threads.

    Every method raises ServingError (a UserError) with the status, the server's message and what to change.

    >>> from serving.benchmark.stand_in import StandIn  # a server that gives every request the same answer
    >>> with StandIn() as server, Client(server.target, "default") as client:
    ...     client.predict_ids([[2, 48, 1631, 3]])["probabilities"]
    array([[0.25, 0.75]], dtype=float32)
    """

    def __init__(self, target: str | Connection, model: str, **settings: Any):
        super().__init__(target, model, **settings)
        self._channel = self.connection.open()
        self._stubs(self._channel)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def raw_stub(self, method: str) -> Callable:
        """A call that takes and gives serialised messages, on this client's connection; raises grpc.RpcError."""
        return self._channel.unary_unary(method)

    def _call(self, stub: Callable, request: Message, timeout_s: float | None) -> Any:
        try:
            return stub(request, timeout=self.timeout_s if timeout_s is None else timeout_s, metadata=trace_headers())
        except grpc.RpcError as error:
            raise ServingError.of(error, self.connection.target) from None

    def predict(
        self,
        inputs: Mapping[str, Value],
        *,
        outputs: Sequence[str] = (),
        signature: str | None = None,
        timeout_s: float | None = None,
    ) -> Arrays:
        """The answer, arrays by output name, to `inputs` by input name (arrays, lists, scalars; str is sent as UTF-8).

        `outputs`: names wanted, empty for all: the server computes and sends no others. `signature`: another than the
        client's.
        """
        request = self.request(inputs, outputs, signature)
        return messages.read_prediction(self._call(self._predict, request, timeout_s))

    def signature(self) -> Signature:
        """What the model takes and gives; asked once, then remembered."""
        return self._signature or self._choose_signature(self.metadata())

    def metadata(self) -> dict[str, Signature]:
        """Every signature of the model, by name."""
        return read_metadata(self._call(self._metadata, self._metadata_request(), None))[1]

    def served_version(self, *, timeout_s: float | None = None) -> int:
        """The version that answers this client now."""
        return read_metadata(self._call(self._metadata, self._metadata_request(), timeout_s))[0]

    def status(self) -> list[VersionStatus]:
        """The model's versions, newest first; those that ended or failed stay listed."""
        return read_status(self._call(self._status, self._status_request(), None))

    def predict_ids(
        self,
        rows: Sequence[Sequence[int]],
        segments: Sequence[Sequence[int]] | None = None,
        *,
        batch_size: int | None = None,
        length_buckets: Sequence[int] = (),
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Arrays:
        """Answers for token-id rows of any lengths, padded here; lengths, mask and segments as the model asks.

        `batch_size`: rows a call; None sends one call. Rows of like length travel together and come back in order.
        """
        numbers, calls = self._split_ids(self.signature(), rows, segments, batch_size, length_buckets)
        parts = [self.predict(inputs, outputs=outputs, timeout_s=timeout_s) for inputs in calls]
        return messages.join_batches(parts, numbers)

    def predict_text(
        self,
        texts: Sequence[str],
        *,
        batch_size: int | None = None,
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Arrays:
        """Answers for texts, in order; `batch_size` as in predict_ids."""
        numbers, calls = self._split_text(self.signature(), texts, batch_size)
        parts = [self.predict(inputs, outputs=outputs, timeout_s=timeout_s) for inputs in calls]
        return messages.join_batches(parts, numbers)

    def embed(
        self, texts: Sequence[str], *, max_batch_tokens: int = 4096, timeout_s: float | None = None
    ) -> np.ndarray:
        """Vectors of texts, float32 [texts, size], in order.

        `max_batch_tokens`: what one call may hold, guessed from the texts' length; texts of like length travel
        together. `timeout_s`: of each call. Raises UserError for a model that gives no vectors of single texts.
        """
        task, answer = self._answer("embed", texts, max_batch_tokens, timeout_s)
        return tasks.vectors_of(task, answer)

    def rerank(
        self, query: str, texts: Sequence[str], *, max_batch_tokens: int = 4096, timeout_s: float | None = None
    ) -> np.ndarray:
        """How well each text answers the query, float32 [texts] from 0 to 1, in order; for models that take pairs.

        A classifier of two classes gives its probability of class 1, a regressor the logistic function of its value.
        """
        pairs = [(query, text) for text in tasks.check_texts(texts)]
        return tasks.relevance(tasks.raw_scores(self._answer("rerank", pairs, max_batch_tokens, timeout_s)[1]))

    def classify(self, texts: Sequence, *, max_batch_tokens: int = 4096, timeout_s: float | None = None) -> Arrays:
        """`label`, `logits` and `probabilities` of texts (a regressor's `value`), in order.

        A model that takes pairs wants `texts` to be a list of (first, second).
        """
        return self._answer("classify", texts, max_batch_tokens, timeout_s)[1]

    def _answer(
        self, kind: str, rows: Sequence, max_batch_tokens: int, timeout_s: float | None
    ) -> tuple[tasks.Task, Arrays]:
        task = self._tasks.get(kind) or self._find_task(kind, self.metadata())
        numbers, calls = self._split_rows(task, rows, max_batch_tokens)
        options: Any = {"outputs": task.outputs, "signature": task.signature, "timeout_s": timeout_s}
        return task, messages.join_batches([self.predict(inputs, **options) for inputs in calls], numbers)


class AsyncClient(ClientBase):
    """Calls one model from an event loop; arguments, answers and errors are those of `Client`.

    >>> import asyncio
    >>> from serving.benchmark.stand_in import StandIn
    >>> async def ask(target, rows):
    ...     async with AsyncClient(target, "default") as client:
    ...         return await asyncio.gather(*[client.predict_ids([row]) for row in rows])
    >>> with StandIn() as server:
    ...     len(asyncio.run(ask(server.target, [[2, 48, 3], [2, 3]])))
    2
    """

    def __init__(self, target: str | Connection, model: str, **settings: Any):
        super().__init__(target, model, **settings)
        self._channel = self.connection.open_async()
        self._stubs(self._channel)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._channel.close()

    async def _call(self, stub: Callable, request: Message, timeout_s: float | None = None) -> Any:
        try:
            return await stub(
                request, timeout=self.timeout_s if timeout_s is None else timeout_s, metadata=trace_headers()
            )
        except grpc.RpcError as error:
            raise ServingError.of(error, self.connection.target) from None

    async def predict(
        self,
        inputs: Mapping[str, Value],
        *,
        outputs: Sequence[str] = (),
        signature: str | None = None,
        timeout_s: float | None = None,
    ) -> Arrays:
        request = self.request(inputs, outputs, signature)
        return messages.read_prediction(await self._call(self._predict, request, timeout_s))

    async def signature(self) -> Signature:
        return self._signature or self._choose_signature(await self.metadata())

    async def metadata(self) -> dict[str, Signature]:
        return read_metadata(await self._call(self._metadata, self._metadata_request()))[1]

    async def served_version(self, *, timeout_s: float | None = None) -> int:
        return read_metadata(await self._call(self._metadata, self._metadata_request(), timeout_s))[0]

    async def status(self) -> list[VersionStatus]:
        return read_status(await self._call(self._status, self._status_request()))

    async def predict_ids(
        self,
        rows: Sequence[Sequence[int]],
        segments: Sequence[Sequence[int]] | None = None,
        *,
        batch_size: int | None = None,
        length_buckets: Sequence[int] = (),
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Arrays:
        numbers, calls = self._split_ids(await self.signature(), rows, segments, batch_size, length_buckets)
        parts = [await self.predict(inputs, outputs=outputs, timeout_s=timeout_s) for inputs in calls]
        return messages.join_batches(parts, numbers)

    async def predict_text(
        self,
        texts: Sequence[str],
        *,
        batch_size: int | None = None,
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Arrays:
        numbers, calls = self._split_text(await self.signature(), texts, batch_size)
        parts = [await self.predict(inputs, outputs=outputs, timeout_s=timeout_s) for inputs in calls]
        return messages.join_batches(parts, numbers)

    async def embed(
        self, texts: Sequence[str], *, max_batch_tokens: int = 4096, timeout_s: float | None = None
    ) -> np.ndarray:
        task, answer = await self._answer("embed", texts, max_batch_tokens, timeout_s)
        return tasks.vectors_of(task, answer)

    async def rerank(
        self, query: str, texts: Sequence[str], *, max_batch_tokens: int = 4096, timeout_s: float | None = None
    ) -> np.ndarray:
        pairs = [(query, text) for text in tasks.check_texts(texts)]
        return tasks.relevance(tasks.raw_scores((await self._answer("rerank", pairs, max_batch_tokens, timeout_s))[1]))

    async def classify(
        self, texts: Sequence, *, max_batch_tokens: int = 4096, timeout_s: float | None = None
    ) -> Arrays:
        return (await self._answer("classify", texts, max_batch_tokens, timeout_s))[1]

    async def _answer(
        self, kind: str, rows: Sequence, max_batch_tokens: int, timeout_s: float | None
    ) -> tuple[tasks.Task, Arrays]:
        task = self._tasks.get(kind) or self._find_task(kind, await self.metadata())
        numbers, calls = self._split_rows(task, rows, max_batch_tokens)
        options: Any = {"outputs": task.outputs, "signature": task.signature, "timeout_s": timeout_s}
        return task, messages.join_batches([await self.predict(inputs, **options) for inputs in calls], numbers)

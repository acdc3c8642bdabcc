"""The two clients, blocking and asyncio: the same methods, the latter's awaited."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import numpy as np

from serving.client.channel import Connection
from serving.client.errors import ServingError
from serving.client.messages import Arrays, Signature, VersionStatus
from serving.client.steps import ClientBase, Result, Steps
from serving.client.tracing import trace_headers
from serving.wire.tensors import Value


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

    def _run(self, steps: Steps[Result]) -> Result:
        advance, value = steps.send, None
        while True:
            try:
                stub, request, timeout_s = advance(value)
            except StopIteration as done:
                return done.value
            try:
                limit = self.timeout_s if timeout_s is None else timeout_s
                advance, value = steps.send, stub(request, timeout=limit, metadata=trace_headers())
            except grpc.RpcError as error:
                advance, value = steps.throw, ServingError.of(error, self.connection.target)

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
        return self._run(self._predict_steps(inputs, outputs, signature, timeout_s))

    def signature(self) -> Signature:
        """What the model takes and gives; asked once, then remembered."""
        return self._run(self._signature_steps())

    def metadata(self) -> dict[str, Signature]:
        """Every signature of the model, by name."""
        return self._run(self._metadata_steps())[1]

    def served_version(self, *, timeout_s: float | None = None) -> int:
        """The version that answers this client now."""
        return self._run(self._metadata_steps(timeout_s))[0]

    def status(self) -> list[VersionStatus]:
        """The model's versions, newest first; those that ended or failed stay listed."""
        return self._run(self._status_steps())

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
        return self._run(self._ids_steps(rows, segments, batch_size, length_buckets, outputs, timeout_s))

    def predict_text(
        self,
        texts: Sequence[str],
        *,
        batch_size: int | None = None,
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Arrays:
        """Answers for texts, in order; `batch_size` as in predict_ids."""
        return self._run(self._text_steps(texts, batch_size, outputs, timeout_s))

    def embed(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str = "",
        truncate_left: bool = False,
        max_batch_tokens: int = 4096,
        timeout_s: float | None = None,
    ) -> np.ndarray:
        """Vectors of texts, float32 [texts, size], in order.

        `prompt_name`: of the prompt before each text, one of the exported folder's; "": the default one.
        `truncate_left`: whether a text that is too long is cut at its beginning. `max_batch_tokens`: what one call may
        hold, guessed from the texts' length; texts of like length travel together. `timeout_s`: of each call. Raises
        UserError for a model that gives no vectors of single texts, or does not take such an option.
        """
        options: dict[str, Any] = {"prompt_name": prompt_name, "truncate_left": truncate_left}
        return self._run(self._embed_steps(texts, max_batch_tokens, timeout_s, **options))

    def rerank(
        self,
        query: str,
        texts: Sequence[str],
        *,
        truncate_left: bool = False,
        max_batch_tokens: int = 4096,
        timeout_s: float | None = None,
    ) -> np.ndarray:
        """How well each text answers the query, float32 [texts] from 0 to 1, in order; for models that take pairs.

        A classifier of two classes gives its probability of class 1, a regressor the logistic function of its value.
        `truncate_left` as in embed.
        """
        return self._run(self._rerank_steps(query, texts, max_batch_tokens, timeout_s, truncate_left=truncate_left))

    def classify(
        self,
        texts: Sequence,
        *,
        truncate_left: bool = False,
        max_batch_tokens: int = 4096,
        timeout_s: float | None = None,
    ) -> Arrays:
        """`label`, `logits` and `probabilities` of texts (a regressor's `value`), in order.

        A model that takes pairs wants `texts` to be a list of (first, second). `truncate_left` as in embed.
        """
        steps = self._task_steps("classify", texts, max_batch_tokens, timeout_s, truncate_left=truncate_left)
        return self._run(steps)[1]


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

    async def _run(self, steps: Steps[Result]) -> Result:
        advance, value = steps.send, None
        while True:
            try:
                stub, request, timeout_s = advance(value)
            except StopIteration as done:
                return done.value
            try:
                limit = self.timeout_s if timeout_s is None else timeout_s
                advance, value = steps.send, await stub(request, timeout=limit, metadata=trace_headers())
            except grpc.RpcError as error:
                advance, value = steps.throw, ServingError.of(error, self.connection.target)

    async def predict(
        self,
        inputs: Mapping[str, Value],
        *,
        outputs: Sequence[str] = (),
        signature: str | None = None,
        timeout_s: float | None = None,
    ) -> Arrays:
        return await self._run(self._predict_steps(inputs, outputs, signature, timeout_s))

    async def signature(self) -> Signature:
        return await self._run(self._signature_steps())

    async def metadata(self) -> dict[str, Signature]:
        return (await self._run(self._metadata_steps()))[1]

    async def served_version(self, *, timeout_s: float | None = None) -> int:
        return (await self._run(self._metadata_steps(timeout_s)))[0]

    async def status(self) -> list[VersionStatus]:
        return await self._run(self._status_steps())

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
        return await self._run(self._ids_steps(rows, segments, batch_size, length_buckets, outputs, timeout_s))

    async def predict_text(
        self,
        texts: Sequence[str],
        *,
        batch_size: int | None = None,
        outputs: Sequence[str] = (),
        timeout_s: float | None = None,
    ) -> Arrays:
        return await self._run(self._text_steps(texts, batch_size, outputs, timeout_s))

    async def embed(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str = "",
        truncate_left: bool = False,
        max_batch_tokens: int = 4096,
        timeout_s: float | None = None,
    ) -> np.ndarray:
        options: dict[str, Any] = {"prompt_name": prompt_name, "truncate_left": truncate_left}
        return await self._run(self._embed_steps(texts, max_batch_tokens, timeout_s, **options))

    async def rerank(
        self,
        query: str,
        texts: Sequence[str],
        *,
        truncate_left: bool = False,
        max_batch_tokens: int = 4096,
        timeout_s: float | None = None,
    ) -> np.ndarray:
        return await self._run(
            self._rerank_steps(query, texts, max_batch_tokens, timeout_s, truncate_left=truncate_left)
        )

    async def classify(
        self,
        texts: Sequence,
        *,
        truncate_left: bool = False,
        max_batch_tokens: int = 4096,
        timeout_s: float | None = None,
    ) -> Arrays:
        steps = self._task_steps("classify", texts, max_batch_tokens, timeout_s, truncate_left=truncate_left)
        return (await self._run(steps))[1]

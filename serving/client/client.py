"""The blocking and the asyncio client."""

import inspect
import typing
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec

import grpc

from serving.client.channel import Connection
from serving.client.errors import ServingError
from serving.client.steps import ClientBase, Result, Steps
from serving.client.tracing import trace_headers
from serving.wire.request_id import HEADER, accepted, current

Arguments = ParamSpec("Arguments")


def _blocking(
    steps: Callable[Concatenate[Any, Arguments], Steps[Result]],
) -> Callable[Concatenate["Client", Arguments], Result]:
    def method(self: "Client", *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self._run(steps(self, *args, **kwargs))

    return _described(method, steps)


def _awaited(
    steps: Callable[Concatenate[Any, Arguments], Steps[Result]],
) -> Callable[Concatenate["AsyncClient", Arguments], Coroutine[Any, Any, Result]]:
    async def method(self: "AsyncClient", *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return await self._run(steps(self, *args, **kwargs))

    return _described(method, steps)


def _described(method: Any, steps: Callable) -> Any:
    method.__name__ = steps.__name__.removeprefix("_").removesuffix("_steps")
    method.__qualname__, method.__doc__ = method.__name__, steps.__doc__
    signature = inspect.signature(steps)
    # Generator[yielded, sent, returned]
    method.__signature__ = signature.replace(return_annotation=typing.get_args(signature.return_annotation)[2])
    return method


class Client(ClientBase):
    """Calls one model of a TensorFlow Serving server over gRPC, on one open connection; thread-safe.

    Every method raises ServingError (a UserError) with the status, the server's message and a hint.

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
        """Returns a function that calls `method` with serialized messages; it raises grpc.RpcError."""
        return self._channel.unary_unary(method)

    def _run(self, steps: Steps[Result]) -> Result:
        advance, value = steps.send, None
        sent = accepted(current())
        headers = ((HEADER, sent), *trace_headers())
        while True:
            try:
                stub, request, timeout_s = advance(value)
            except StopIteration as done:
                return done.value
            try:
                limit = self.timeout_s if timeout_s is None else timeout_s
                advance, value = steps.send, stub(request, timeout=limit, metadata=headers)
            except grpc.RpcError as error:
                advance, value = steps.throw, ServingError.of(error, self.connection.target, sent)

    predict = _blocking(ClientBase._predict_steps)
    predict_ids = _blocking(ClientBase._predict_ids_steps)
    predict_text = _blocking(ClientBase._predict_text_steps)
    embed = _blocking(ClientBase._embed_steps)
    rerank = _blocking(ClientBase._rerank_steps)
    classify = _blocking(ClientBase._classify_steps)
    signature = _blocking(ClientBase._signature_steps)
    metadata = _blocking(ClientBase._metadata_steps)
    served_version = _blocking(ClientBase._served_version_steps)
    status = _blocking(ClientBase._status_steps)


class AsyncClient(ClientBase):
    """Calls one model from an event loop; methods and errors are those of `Client`.

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
        sent = accepted(current())
        headers = ((HEADER, sent), *trace_headers())
        while True:
            try:
                stub, request, timeout_s = advance(value)
            except StopIteration as done:
                return done.value
            try:
                limit = self.timeout_s if timeout_s is None else timeout_s
                advance, value = steps.send, await stub(request, timeout=limit, metadata=headers)
            except grpc.RpcError as error:
                advance, value = steps.throw, ServingError.of(error, self.connection.target, sent)

    predict = _awaited(ClientBase._predict_steps)
    predict_ids = _awaited(ClientBase._predict_ids_steps)
    predict_text = _awaited(ClientBase._predict_text_steps)
    embed = _awaited(ClientBase._embed_steps)
    rerank = _awaited(ClientBase._rerank_steps)
    classify = _awaited(ClientBase._classify_steps)
    signature = _awaited(ClientBase._signature_steps)
    metadata = _awaited(ClientBase._metadata_steps)
    served_version = _awaited(ClientBase._served_version_steps)
    status = _awaited(ClientBase._status_steps)

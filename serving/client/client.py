"""The blocking and the asyncio client."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

import grpc
import grpc.aio

from serving.client.calls import ClientBase
from serving.client.channel import Connection
from serving.wire.request_id import current, request_id

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


# A request in parts has one id.
def _blocking(
    calls: Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["Client", Arguments], Result]:
    def method(self: "Client", *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with request_id(current()):
            try:
                calls(self, *args, **kwargs).send(None)
            except StopIteration as done:
                return done.value
        raise RuntimeError("a blocking channel waited for an event loop")

    return _described(method, calls)


def _awaited(
    calls: Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["AsyncClient", Arguments], Coroutine[Any, Any, Result]]:
    async def method(self: "AsyncClient", *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with request_id(current()):
            return await calls(self, *args, **kwargs)

    return _described(method, calls)


def _described(method: Any, calls: Callable) -> Any:
    functools.update_wrapper(method, calls)
    method.__name__ = method.__qualname__ = calls.__name__.removeprefix("_")
    return method


class Client(ClientBase):
    """Calls one model of a TensorFlow Serving server over gRPC, on one open connection; thread-safe.

    Every method raises ServingError (a UserError) with the status, the server's message and a hint.

    >>> with Client(target, "default") as client:  # target: HOST:PORT of a server
    ...     client.predict_ids([[2, 48, 1631, 3]])["probabilities"]
    array([[0.25, 0.75]], dtype=float32)
    """

    def __init__(self, target: str | Connection, model: str, **settings: Any):
        super().__init__(target, model, **settings)
        self._open(self.connection.open)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def raw_stub(self, method: str) -> Callable:
        """Returns a function that calls `method` with serialized messages; it raises grpc.RpcError."""
        return self._channels[-1].unary_unary(method)

    predict = _blocking(ClientBase._predict)
    predict_ids = _blocking(ClientBase._predict_ids)
    predict_text = _blocking(ClientBase._predict_text)
    embed = _blocking(ClientBase._embed)
    rerank = _blocking(ClientBase._rerank)
    classify = _blocking(ClientBase._classify)
    signature = _blocking(ClientBase._signature)
    metadata = _blocking(ClientBase._metadata)
    described = _blocking(ClientBase._described)
    served_version = _blocking(ClientBase._served_version)
    status = _blocking(ClientBase._status)


class _ChannelPerLoop:
    """Calls by a channel of the running event loop, since gRPC binds a channel to one loop."""

    def __init__(self, open_channel: Callable[[], grpc.aio.Channel]):
        self._open = open_channel
        self._channels: dict[asyncio.AbstractEventLoop, grpc.aio.Channel] = {}

    def unary_unary(self, *method: Any) -> Callable:
        return lambda *arguments, **options: self._here().unary_unary(*method)(*arguments, **options)

    def _here(self) -> grpc.aio.Channel:
        loop = asyncio.get_running_loop()
        if loop not in self._channels:
            kept = {one: channel for one, channel in self._channels.items() if not one.is_closed()}
            self._channels = {**kept, loop: self._open()}
        return self._channels[loop]

    async def close(self) -> None:
        await self._here().close()


class AsyncClient(ClientBase):
    """Calls one model from event loops; methods and errors are those of `Client`.

    >>> import asyncio
    >>> async def ask(rows):
    ...     async with AsyncClient(target, "default") as client:
    ...         return await asyncio.gather(*[client.predict_ids([row]) for row in rows])
    >>> len(asyncio.run(ask([[2, 48, 3], [2, 3]])))
    2
    """

    def __init__(self, target: str | Connection, model: str, **settings: Any):
        super().__init__(target, model, **settings)
        self._open(lambda pings: _ChannelPerLoop(functools.partial(self.connection.open_async, pings)))

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    predict = _awaited(ClientBase._predict)
    predict_ids = _awaited(ClientBase._predict_ids)
    predict_text = _awaited(ClientBase._predict_text)
    embed = _awaited(ClientBase._embed)
    rerank = _awaited(ClientBase._rerank)
    classify = _awaited(ClientBase._classify)
    signature = _awaited(ClientBase._signature)
    metadata = _awaited(ClientBase._metadata)
    described = _awaited(ClientBase._described)
    served_version = _awaited(ClientBase._served_version)
    status = _awaited(ClientBase._status)

"""HTTP for the REST API: uvicorn on its own thread, requests on a pool of threads."""

import asyncio
import contextlib
import functools
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving.model_server import json_response
from serving.model_server.rest import LARGE_BODY_BYTES, BodyTooLarge, Response, RestApi
from serving.model_server.status import UNAVAILABLE, StatusError

# How long a client may send nothing in the middle of its request. How long the whole takes is not limited.
_RECEIVE_SECONDS = 30.0
_KEEP_ALIVE_SECONDS = 75
_MAX_HEADER_BYTES = 2**16
_BACKLOG = 1024
_CLOSE = {"Content-Type": "application/json", "Connection": "close"}


class RestServer:
    """An HTTP server in front of `api`: its port is taken at once, requests are answered from start() on."""

    def __init__(self, api: RestApi, address: str, port: int, threads: int):
        """Raises StatusError when the port cannot be opened."""
        self._api = api
        # Large bodies (compressed ones may be) wait for one another in RestApi; small ones must not wait with them.
        self._pools = ThreadPoolExecutor(threads, "rest"), ThreadPoolExecutor(threads, "rest-large")
        self._receiving: set[asyncio.Task] = set()
        try:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            self._socket = socket.create_server((address, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise StatusError(UNAVAILABLE, f"Cannot listen on {address}:{port}: {error.strerror}") from error
        config = uvicorn.Config(
            self._application,
            http=_PatientProtocol,
            interface="asgi3",
            proxy_headers=False,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="rest-server")

    def start(self) -> None:
        self._thread.start()

    def refuse_new(self) -> None:
        """Takes no new connections, and closes those that wait or are still sending their request."""
        self._server.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(self._stop_receiving)

    def stop(self, grace: float | None = None) -> None:
        """Takes no new connections, waits up to `grace` seconds (None = as long as it takes) for requests that run."""
        self._server.config.timeout_graceful_shutdown = grace
        self.refuse_new()
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()
        for pool in self._pools:
            pool.shutdown(wait=grace is None, cancel_futures=True)

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._server.serve([self._socket]))

    def _stop_receiving(self) -> None:
        for task in self._receiving:
            task.cancel()

    async def _application(self, scope, receive, send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except ConnectionError:
            return
        fields = {**answer.headers, "Content-Length": str(len(answer.body))}
        headers = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope, receive) -> Response:
        if self._server.should_exit:
            return _stopping()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        task = asyncio.current_task()
        self._receiving.add(task)
        try:
            body = await _body(receive, int(headers.get("content-length", 0)), self._api.max_body_bytes)
        except BodyTooLarge as error:
            return Response(413, json_response.error(error.message), dict(_CLOSE))
        except TimeoutError:
            return Response(408, headers={"Connection": "close"})
        except asyncio.CancelledError:
            return _stopping()
        finally:
            self._receiving.discard(task)
        path = scope["raw_path"].decode("latin-1") + ("?" if scope["query_string"] else "")
        pool = self._pools[len(body) >= LARGE_BODY_BYTES or "content-encoding" in headers]
        call = functools.partial(self._api.answer, scope["method"], path, headers, body, time.monotonic())
        return await asyncio.get_running_loop().run_in_executor(pool, call)


def _stopping() -> Response:
    return Response(503, json_response.error("the server is stopping"), dict(_CLOSE))


async def _body(receive, announced: int, limit: int) -> bytes:
    """The request's body. Raises ConnectionError, BodyTooLarge or TimeoutError."""
    chunks, size, more = [], 0, True
    while more:
        message = await asyncio.wait_for(receive(), _RECEIVE_SECONDS)
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client left before the end of its request")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        more = message.get("more_body", False)
        if max(size, announced) > limit:
            chunks.clear()  # Read on: a client that is cut off while it sends sees a broken pipe, not the answer.
    if max(size, announced) > limit:
        raise BodyTooLarge(limit)
    return b"".join(chunks)


class _PatientProtocol(HttpToolsProtocol):
    """What uvicorn leaves to a proxy.

    It closes a connection whose request line and headers take too long or too much room, and answers one that is half
    closed.
    """

    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
        # The answer goes out in two writes; with Nagle's algorithm the second waits 40 ms for the first's receipt.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        if self._timer is not None:
            self._header_bytes += len(data)
        super().data_received(data)
        if self._timer is not None and self._header_bytes > _MAX_HEADER_BYTES:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:
            self._expect_headers()

    def on_headers_complete(self) -> None:
        self._cancel()
        super().on_headers_complete()

    def eof_received(self) -> bool:
        """A client that has sent its whole request and closed its side still gets its answer."""
        if self.cycle is None or self.cycle.more_body or self.cycle.response_complete:
            return False
        self.cycle.keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        self._header_bytes = 0
        self._timer = self.loop.call_later(_RECEIVE_SECONDS, self.transport.close)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

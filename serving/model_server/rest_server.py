"""HTTP for the REST API: uvicorn on its own thread, requests on a pool of threads."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving.model_server.rest import Answer, RestApi
from serving.model_server.status import UNAVAILABLE, ServingError

_RECEIVE_SECONDS = 30.0
_KEEP_ALIVE_SECONDS = 75
_MAX_BODY_BYTES = 2**31 - 1
_MAX_HEADER_BYTES = 2**16
_BACKLOG = 1024


class RestServer:
    """A running HTTP server in front of `api`."""

    def __init__(self, api: RestApi, address: str, port: int, threads: int):
        """Raises ServingError when the port cannot be opened."""
        self._api = api
        self._pool = ThreadPoolExecutor(threads, "rest")
        try:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            self._socket = socket.create_server((address, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ServingError(UNAVAILABLE, f"Cannot listen on {address}:{port}: {error.strerror}") from error
        config = uvicorn.Config(
            self._application,
            http=_PatientProtocol,
            interface="asgi3",
            proxy_headers=False,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="rest-server")
        self._thread.start()

    def stop(self) -> None:
        """Takes no new connections, finishes the requests that run."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
        self._pool.shutdown(wait=True)

    async def _application(self, scope, receive, send) -> None:
        try:
            body = await asyncio.wait_for(_body(receive), _RECEIVE_SECONDS)
        except ConnectionError:
            return
        except TimeoutError:
            answer = Answer(408, headers={"Connection": "close"})
        else:
            answer = Answer(413, headers={"Connection": "close"})
            if body is not None:
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
                path = scope["raw_path"].decode("latin-1")
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(self._pool, self._api.answer, scope["method"], path, headers, body)
        fields = {**answer.headers, "Content-Length": str(len(answer.body))}
        headers = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})


async def _body(receive) -> bytes | None:
    """The request's body, or None when it is larger than any gRPC message may be. Raises ConnectionError."""
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client left before the end of its request")
        chunk = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)
        if size > _MAX_BODY_BYTES:
            return None
        more = message.get("more_body", False)
    return b"".join(chunks)


class _PatientProtocol(HttpToolsProtocol):
    """What uvicorn leaves to a proxy: closes a connection whose request line and headers take too long or too much
    room, and answers one that is half closed."""

    _timer: asyncio.TimerHandle | None = None
    _header_bytes = 0

    def connection_made(self, transport) -> None:
        super().connection_made(transport)
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

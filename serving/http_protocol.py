"""What uvicorn leaves to a proxy: connections and bodies that come too slowly, or with too much in them."""

import asyncio
import socket

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# How long a client may send nothing in the middle of its request. How long the whole takes is not limited.
RECEIVE_SECONDS = 30.0
_MAX_HEADER_BYTES = 2**16


class LongBody(Exception):
    """A request's body is larger than may be."""


async def read_body(receive, announced: int, limit: int) -> bytes:
    """Reads the body of an ASGI request.

    Args:
        receive: ASGI's.
        announced: Content-Length, in bytes, or 0.
        limit: The largest body that is taken, in bytes.

    Returns:
        The body.

    Raises:
        ConnectionError: when the client left before its end.
        LongBody: for one above the limit.
        TimeoutError: when nothing came for RECEIVE_SECONDS.
    """
    chunks, size, more = [], 0, True
    while more:
        message = await asyncio.wait_for(receive(), RECEIVE_SECONDS)
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client left before the end of its request")
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        more = message.get("more_body", False)
        if max(size, announced) > limit:
            chunks.clear()  # Read on: a client that is cut off while it sends sees a broken pipe, not the answer.
    if max(size, announced) > limit:
        raise LongBody
    return b"".join(chunks)


class PatientProtocol(HttpToolsProtocol):
    """Closes a connection whose request line and headers take too long or too much room, answers one half closed."""

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
        self._timer = self.loop.call_later(RECEIVE_SECONDS, self.transport.close)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

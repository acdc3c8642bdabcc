"""HTTP for both servers, with protection from slow or large requests."""

import asyncio
import contextlib
import gzip
import io
import math
import socket
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

try:
    import resource
except ModuleNotFoundError:
    # Windows has no such limits.
    resource = None

# Time limit of a pause within a request, seconds. The whole request has no limit.
RECEIVE_SECONDS = 30.0
# After the answer to a request that has not come whole, the connection stays this long for the rest.
_REST_SECONDS = 3.0
# A client that takes less than this of its answers within _SEND_SECONDS is cut off, unless it has taken them all.
_SEND_SECONDS = 30.0
_LEAST_SENT = 2**18
_MAX_HEADER_BYTES = 2**16
_LARGE_WRITE = 2**16
_KEEP_ALIVE_SECONDS = 75
# The part of the limit of open files that the connections of one server may take: a process may have two servers, and
# needs files for other things.
_SHARE_OF_FILES = 1 / 3
_BACKLOG = 1024


def raise_file_limit() -> None:
    """Raises the process's limit of open files to the hard one: clients must not use up the usual 1024."""
    if resource is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS allows less than it says.
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class HttpServer:
    """An HTTP server for an ASGI application: opens its port at once (0: a free one), and answers after start().

    `lifespan` is "on" or "off". `drain_s`: seconds to wait for running requests at the end; None: no limit.
    Without `answers_half_closed` a client that closes its side of the connection is gone, and its request ends.

    Raises OSError if the port cannot be opened.
    """

    def __init__(
        self,
        application: Any,
        address: str,
        port: int,
        lifespan: str = "off",
        drain_s: float | None = None,
        answers_half_closed: bool = True,
    ):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, port), family=family, backlog=_BACKLOG)
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="http-server")
        self._server = uvicorn.Server(
            uvicorn.Config(
                application,
                http=PatientProtocol if answers_half_closed else _ClosingProtocol,
                interface="asgi3",
                proxy_headers=False,
                ws="none",
                lifespan=lifespan,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=drain_s,
            )
        )

    def _serve(self) -> None:
        asyncio.run(self._server.serve([self._socket]))

    def start(self) -> None:
        self._thread.start()

    def refuse_new(self, drain_s: float | None = None) -> None:
        """Refuses new connections; cuts off running requests after `drain_s` seconds, if given."""
        if drain_s is not None:
            self._server.config.timeout_graceful_shutdown = drain_s
        self._server.should_exit = True

    def stop(self, drain_s: float | None = None) -> None:
        self.refuse_new(drain_s)
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()


# A client that was refused for the moment may come again after so many seconds.
RETRY_S = 1


class Refusal(Exception):
    """An HTTP error response.

    `code` is machine-readable. `retry_after` is in seconds; None: a retry cannot succeed.
    """

    def __init__(self, status: int, message: str, code: str = "invalid_request", retry_after: int | None = None):
        # A quoted header may hold bytes that are no UTF-8.
        message = message.encode(errors="replace").decode()
        super().__init__(message)
        self.status, self.message, self.code, self.retry_after = status, message, code, retry_after


def inflated(body: bytes, coding: str, limit: int) -> bytes:
    """Returns a decompressed body; `coding` is its Content-Encoding.

    Raises Refusal if the coding is unknown, the body is damaged, or has more than `limit` bytes.

    >>> inflated(zlib.compress(b"a text"), "deflate", limit=6)
    b'a text'
    """
    coding = coding.strip().lower()
    try:
        if coding in ("", "identity"):
            found = body
        elif coding in ("gzip", "x-gzip"):
            found = gzip.GzipFile(fileobj=io.BytesIO(body)).read(limit + 1)
        elif coding == "deflate":
            # zlib's form of it or, as some clients send it, without a header.
            inflate = zlib.decompressobj(15 if body[:1] and body[0] % 16 == 8 else -15)
            found = inflate.decompress(body, limit + 1)
            if not inflate.eof and len(found) <= limit:
                raise EOFError("it breaks off")
        else:
            message = f"Content-Encoding '{coding[:50]}' is not known; send gzip, deflate, or the body as it is"
            raise Refusal(415, message, "unsupported_media_type")
    except (OSError, EOFError, zlib.error) as error:
        raise Refusal(400, f"the compressed body cannot be read: {error}") from error
    if len(found) > limit:
        raise _long_body(limit)
    return found


def _long_body(limit: int) -> Refusal:
    return Refusal(413, f"the body is over the {limit} bytes of this server", "too_large")


class Room:
    """Limits the bytes that the bodies and answers of all requests take together.

    The body of a request that is alone is never refused.

    >>> room = Room(10)
    >>> with room.share() as first, room.share() as second:
    ...     first.take(8), second.take(1)
    (None, None)
    >>> room.held
    0
    """

    def __init__(self, limit: float):
        self.limit, self.held = limit, 0

    @contextlib.contextmanager
    def share(self) -> Iterator["Share"]:
        """Yields a request's share, until the end of the block."""
        share = Share(self)
        try:
            yield share
        finally:
            share.take(-share.size)


class Share:
    """The bytes of a Room that one request takes, `answer` of them for its answer."""

    def __init__(self, room: Room):
        self._room, self.size, self.answer = room, 0, 0

    def take(self, size: int) -> None:
        """Takes `size` more bytes; raises Refusal, and takes none, if they do not fit."""
        room = self._room
        if size > 0 and room.held > self.size and room.held + size > room.limit:
            message = "the bodies and answers of other requests fill the memory they may take"
            raise Refusal(429, message, "overloaded", RETRY_S)
        room.held += size
        self.size += size

    def take_answer(self, size: int) -> None:
        """Takes `size` more bytes for the answer; if they do not fit, releases those of before.

        Raises Refusal as `take`, or if the answer alone is too large.
        """
        limit = self._room.limit
        try:
            if self.answer + size > limit:
                message = f"the answer takes more than the {limit} bytes of this server; send fewer or shorter texts"
                raise Refusal(413, message, "too_large")
            self.take(size)
        except Refusal:
            # At once, so that not all answers of this moment fail.
            size = -self.answer
            self.take(size)
            raise
        finally:
            self.answer += size


async def read_body(receive, announced: int, limit: int, share: Share | None = None) -> bytes:
    """Returns the body of an ASGI request; `announced` is its Content-Length, or 0.

    Raises:
        ConnectionError: The client disconnects.
        Refusal: The body is above the limit, or does not fit into `share`.
        TimeoutError: Nothing arrived for RECEIVE_SECONDS.
    """
    # Not a list: a slow client could send each byte as a chunk of its own.
    body, size, more, refusal = bytearray(), 0, True, None
    while more:
        async with asyncio.timeout(RECEIVE_SECONDS):
            message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError("the client left before the end of its request")
        chunk = message.get("body", b"")
        body += chunk
        size += len(chunk)
        more = message.get("more_body", False)
        try:
            if share is not None and refusal is None:
                share.take(len(chunk))
        except Refusal as error:
            refusal = error
        if max(size, announced) > limit:
            refusal = _long_body(limit)
        if refusal is not None:
            body.clear()  # Reads on: a client that is cut off while it sends gets a broken pipe, not the answer.
    if refusal is not None:
        raise refusal
    return bytes(body)


class JoinedWrites:
    """A transport that joins all writes of one event loop iteration; Nagle's algorithm would delay the second.

    It cuts off a client that does not read.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop):
        self._transport, self._loop = transport, loop
        self._waiting: list[bytes] = []
        self._written = 0
        self._timer: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str):
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Sends at the end of this iteration; large data at once."""
        if not self._waiting and len(data) < _LARGE_WRITE:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        if len(data) >= _LARGE_WRITE:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if self._timer is not None and not self._transport.get_write_buffer_size():
            self._timer.cancel()
            self._timer = None
        small = sum(map(len, waiting)) < 2 * _LARGE_WRITE
        for data in [b"".join(waiting)] if small and waiting else waiting:
            self._transport.write(data)
            self._written += len(data)
        if self._timer is None:
            self._expect_reads()

    def _expect_reads(self, before: int | None = None) -> None:
        # `before`: what the client had taken at the last look.
        self._timer, left = None, self._transport.get_write_buffer_size()
        taken = self._written - left
        if left and before is not None and taken - before < _LEAST_SENT:
            self._transport.abort()
        elif left:
            self._timer = self._loop.call_later(_SEND_SECONDS, self._expect_reads, taken)


class UpgradeIgnoringParser:
    """httptools' parser, which parses requests with `Upgrade` like all others (RFC 9110, section 7.8).

    httptools stops after their headers; a second parser reads them again without `Upgrade`, then the body.
    """

    def __init__(self, protocol: "PatientProtocol"):
        self._protocol, self._parser = protocol, self._new(protocol)

    def __getattr__(self, name: str):
        return getattr(self._parser, name)

    @staticmethod
    def _new(protocol: "PatientProtocol") -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(protocol)
        # As in uvicorn: requests that follow one with `Connection: close` do not turn that one into an error.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def feed_data(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as stop:
                if self._protocol.is_tunnel:
                    raise
                head = self._protocol.head()
                self._parser = self._new(self._protocol)
                self._parser.feed_data(head)
                data = data[stop.args[0] :]


class PatientProtocol(HttpToolsProtocol):
    """Closes connections whose request line and headers are too slow or too large; answers half-closed ones."""

    _timer: asyncio.TimerHandle | None = None
    # Runs after an answer until the rest of its request has come.
    _rest: asyncio.TimerHandle | None = None
    _header_bytes = 0
    # Whether the headers that were just read hold `Upgrade`: they are read again without it.
    _has_upgrade = False

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.parser = UpgradeIgnoringParser(self)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being received or answered, but for its headers."""
        return self.cycle is None or (self.cycle.response_complete and not self.cycle.more_body)

    @property
    def is_tunnel(self) -> bool:
        """Whether the method is CONNECT, which httptools always reports as an upgrade."""
        return self.parser.get_method() == b"CONNECT"

    def head(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def connection_made(self, transport) -> None:
        super().connection_made(JoinedWrites(transport, self.loop))
        self._idle_since = self.loop.time()
        # A large answer goes out in several writes; with Nagle's algorithm the last waits 40 ms for a receipt.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expect_headers()
        self._make_way()

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
        self._has_upgrade = self.parser.should_upgrade() and not self.is_tunnel
        if not self._has_upgrade:
            self._cancel()
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        if not self._has_upgrade:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._idle_since = self.loop.time()
        if self.cycle.more_body:
            # Not at once: a client that still sends would get a broken pipe, and not the answer.
            self._rest = self.loop.call_later(_REST_SECONDS, self.transport.close)

    def eof_received(self) -> bool:
        """Lets a client that has stopped sending receive the answer."""
        if self.cycle is None or self.cycle.more_body or self.cycle.response_complete:
            return False
        self.cycle.keep_alive = False
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        if self._rest is not None:
            self._rest.cancel()
        super().connection_lost(exc)

    def _make_way(self) -> None:
        # Closes those connections without a request that have waited longest, before the files run out.
        files = math.inf if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = math.inf if files in (math.inf, getattr(resource, "RLIM_INFINITY", None)) else files * _SHARE_OF_FILES
        if len(self.connections) <= most:
            return
        others = [one for one in self.connections if one is not self and not one.transport.is_closing()]
        idle = [one for one in others if one.is_idle] if len(others) >= most else []
        for one in sorted(idle, key=lambda one: one._idle_since)[: 1 + len(idle) // 8]:
            one.transport.close()

    def _expect_headers(self) -> None:
        self._header_bytes = 0
        self._timer = self.loop.call_later(RECEIVE_SECONDS, self.transport.close)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _ClosingProtocol(PatientProtocol):
    def eof_received(self) -> bool:
        return False

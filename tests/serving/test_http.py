"""HTTP as RFC 9110 has it, by both servers: what they share is tried with an application that sends requests back."""

import contextlib
import json
import resource
import socket
import time

import pytest

from serving import http_protocol
from serving.http_protocol import HttpServer, Refusal, Room, read_body

LARGE = 2**24


async def echo(scope, receive, send):
    """Answers with what arrived, as JSON; at /large with 16 MiB, more than sockets hold."""
    body = await read_body(receive, 0, 2**20)
    if scope["path"] == "/large":
        headers = [(b"content-length", b"%d" % LARGE)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * LARGE})
        return
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    answer = json.dumps({"verb": scope["method"], "path": scope["path"], "headers": headers, "body": body.decode()})
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(answer))]})
    await send({"type": "http.response.body", "body": answer.encode()})


@pytest.fixture(scope="module")
def port():
    server = HttpServer(echo, "127.0.0.1", 0, drain_s=1)
    server.start()
    yield server.port
    server.stop()


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def answers(port, packets, count):
    """The status and the decoded body of `count` answers to what is sent packet by packet on one connection."""
    with connect(port) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream, found = connection.makefile("rb"), []
        for packet in packets:
            connection.sendall(packet)
        for _ in range(count):
            status = int(stream.readline().split()[1])
            headers = dict(line.decode().strip().lower().split(": ", 1) for line in iter(stream.readline, b"\r\n"))
            found.append((status, json.loads(stream.read(int(headers["content-length"])))))
        return found


BODY = '{"input": "a fine film"}'
CHUNKED = f"Transfer-Encoding: chunked\r\n\r\n{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"
PLAIN = f"Content-Length: {len(BODY)}\r\n\r\n{BODY}"
UPGRADES = {
    "h2c": "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQB\r\n",
    "websocket": "Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\n",
    "tls": "upgrade: TLS/1.3, HTTP/2.0\r\nconnection: UPGRADE\r\n",
}


@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("framing", [PLAIN, CHUNKED], ids=["length", "chunked"])
@pytest.mark.parametrize("packets", ["one", "head and body", "bytes"])
def test_an_upgrade_is_ignored_and_no_body_is_lost(port, upgrade, framing, packets):
    head, body = f"POST /a?b=c HTTP/1.1\r\nHost: x\r\n{UPGRADES[upgrade]}{framing}".split("\r\n\r\n", 1)
    following = f"POST /next HTTP/1.1\r\nHost: x\r\n{UPGRADES[upgrade]}{PLAIN}GET /last HTTP/1.1\r\nHost: x\r\n\r\n"
    whole = f"{head}\r\n\r\n{body}{following}".encode()
    sent = {
        "one": [whole],
        "head and body": [f"{head}\r\n\r\n".encode(), f"{body}{following}".encode()],
        "bytes": [bytes([byte]) for byte in whole],
    }[packets]
    first, second, last = answers(port, sent, 3)
    assert [status for status, _ in (first, second, last)] == [200] * 3
    assert [one["path"] for _, one in (first, second, last)] == ["/a", "/next", "/last"]
    assert first[1]["body"] == second[1]["body"] == BODY and last[1]["body"] == ""
    assert "upgrade" not in first[1]["headers"] and first[1]["headers"]["host"] == "x"


def test_a_client_that_waits_for_100_continue_is_asked_on(port):
    with connect(port) as connection:
        head, body = PLAIN.split("\r\n\r\n")
        connection.sendall(
            f"POST / HTTP/1.1\r\nHost: x\r\n{UPGRADES['h2c']}Expect: 100-continue\r\n{head}\r\n\r\n".encode()
        )
        stream = connection.makefile("rb")
        assert stream.readline().startswith(b"HTTP/1.1 100")
        stream.readline()
        connection.sendall(body.encode())
        assert stream.readline().startswith(b"HTTP/1.1 200")


def test_connect_is_no_loop(port):
    with connect(port) as connection:
        connection.sendall(b"CONNECT other:80 HTTP/1.1\r\nHost: other:80\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 ")


@contextlib.contextmanager
def asked_for_much(port):
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**18)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", port))
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        yield connection


def read(connection, size):
    """The number of bytes that came, up to `size` or a little more."""
    seen = 0
    with contextlib.suppress(ConnectionError):
        while seen < size and (chunk := connection.recv(2**16)):
            seen += len(chunk)
    return seen


def test_a_client_that_does_not_read_its_answer_is_cut_off_and_a_slow_one_is_not(port, monkeypatch):
    monkeypatch.setattr(http_protocol, "_SEND_SECONDS", 0.2)
    monkeypatch.setattr(http_protocol, "_LEAST_SENT", 1000)
    with asked_for_much(port) as silent, asked_for_much(port) as slow:
        seen = 0
        while seen < LARGE:
            some = read(slow, min(2**20, LARGE - seen))
            assert some
            seen += some
            time.sleep(0.02)
        assert read(silent, LARGE) < LARGE


def test_the_longest_idle_connections_make_way_before_the_files_run_out(port, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (30, 30))
    with contextlib.ExitStack() as stack:

        def opened(request=b""):
            connection = stack.enter_context(connect(port))
            connection.sendall(request)
            return connection

        busy = opened(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n.")
        kept = opened(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert kept.recv(1000).startswith(b"HTTP/1.1 200")
        silent = [opened() for _ in range(20)]
        assert kept.recv(1000) == b"" == silent[0].recv(1000)
        for connection, rest in ((busy, b"."), (silent[-1], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")):
            connection.sendall(rest)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_an_answer_that_does_not_fit_makes_way_for_the_others():
    room = Room(10)
    with room.share() as one, room.share() as other:
        one.take_answer(6)
        other.take_answer(4)
        with pytest.raises(Refusal, match="fill the memory"):
            one.take_answer(1)
        other.take_answer(5)
        assert room.held == 9
        with pytest.raises(Refusal, match="more than the 10 bytes"):
            other.take_answer(2)
        assert room.held == 0

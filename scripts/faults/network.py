"""Connections that are slow, silent or too many, names that are not found, certificates that expire."""

import contextlib
import datetime
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator

from scripts.faults.rows import row
from scripts.faults.stage import Failed, Impossible, Process, Stage, answers, ask, check, load, wait_for
from serving.client import Client, Connection, ServingError
from tests.servers import free_port

_BODY = b'{"inputs": "a text"}'
_HEAD = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def _close(connections: Iterable[socket.socket]) -> None:
    for connection in connections:
        connection.close()


def _is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed it, perhaps after an answer."""
    connection.settimeout(0.0)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _check_retry_later(gateway: Process) -> None:
    status, headers, body = ask(gateway.http, "/embed", b'{"inputs": "a"}')
    check(status == 503 and "retry-after" in headers, f"HTTP {status}: {body[:100]!r}")


@row(
    "slow-clients",
    "180 clients that send a byte a second: heads, bodies and gRPC, to server and gateway, for 40 s",
    "others are answered all the time; slow heads are closed after 30 s",
)
def slow_clients(stage: Stage) -> str:
    server, gateway, ports = stage.server_and_gateway()
    slow = [(_connect(port), _HEAD) for port in (server.rest, gateway.http, server.port) for _ in range(30)]
    bodies = [(_connect(port), b" " * 5000) for port in (server.rest, gateway.http) for _ in range(45)]
    for connection, _ in bodies:
        connection.sendall(_HEAD)
    begin = time.monotonic()
    with load(ports) as counts:
        for second in range(40):
            for connection, content in slow + bodies:
                with contextlib.suppress(OSError):
                    connection.send(content[second : second + 1])
            time.sleep(max(0.0, begin + second + 1 - time.monotonic()))
    said = counts.all_answered()
    left = sum(not _is_closed(connection) for connection, _ in slow[:60])
    check(not left, f"{left} of 60 slow heads are still connected")
    _close(connection for connection, _ in slow + bodies)
    check(answers(ports), "no answer afterwards")
    return said


@row(
    "half-open",
    "300 clients that send half a head or half a body, and then nothing",
    "closed within 35 s; others are answered",
)
def half_open(stage: Stage) -> str:
    server, gateway, ports = stage.server_and_gateway()
    before = server.open_files, gateway.open_files
    silent = [_connect(port) for port in (server.rest, gateway.http) for _ in range(150)]
    for number, connection in enumerate(silent):
        connection.sendall(_HEAD[:40] if number % 2 else _HEAD + _BODY)
    with load(ports) as counts:
        wait_for(lambda: all(map(_is_closed, silent)), "silent connections are closed", 45)
    _close(silent)
    said = counts.all_answered()
    wait_for(lambda: server.open_files <= before[0] + 10 and gateway.open_files <= before[1] + 10, "files are closed")
    return said


@row(
    "10000-connections",
    "10,000 open connections to REST, to the gateway, and to gRPC, in turn",
    "others are answered; afterwards the files are closed",
)
def many_connections(stage: Stage) -> str:
    server, gateway, ports = stage.server_and_gateway()
    seen = []
    for process, port in ((server, server.rest), (gateway, gateway.http), (server, server.port)):
        before = process.open_files
        opened = []
        try:
            for _ in range(10_000):
                opened.append(_connect(port))
        except OSError as error:
            _close(opened)
            raise Impossible(f"{len(opened):,} connections, then: {error.strerror} (ulimit -n)") from error
        begin = time.monotonic()
        check(answers(ports), "no answer beside 10,000 connections")
        seconds = time.monotonic() - begin
        _close(opened)
        wait_for(lambda: process.open_files < before + 100, "the files are closed")  # noqa: B023
        check(answers(ports), "no answer afterwards")
        seen.append(f"{seconds:.1f} s")
    return f"three answers beside them took {', '.join(seen)}"


@row(
    "files-exhausted",
    "400 connections to servers that may open 256 files",
    "no end, no busy loop; answers when connections go",
)
def files_exhausted(stage: Stage) -> str:
    server, gateway, ports = stage.server_and_gateway(files=256)
    for process, port in ((server, server.rest), (gateway, gateway.http), (server, server.port)):
        opened = [_connect(port) for _ in range(400)]
        time.sleep(2)
        begin = process.cpu_seconds()
        time.sleep(5)
        used = process.cpu_seconds() - begin
        check(process.runs, f"the process ended: {process.last_line}")
        check(used < 2.5, f"{used:.1f} s of the CPU in 5 s of waiting at port {port}")
        _close(opened)
        wait_for(lambda: answers(ports), "answers once the connections are gone", 40)
    return "answers again after each"


@row(
    "expired-certificate",
    "the server's certificate expires behind the gateway; another after a restart",
    "503 with Retry-After; back by itself",
)
def expired_certificate(stage: Stage) -> str:
    try:
        import trustme
    except ImportError:
        raise Impossible("trustme is not installed (requirements/test.txt)") from None
    authority = trustme.CA()
    (stage.folder / "root.pem").write_bytes(authority.cert_pem.bytes())
    now = datetime.datetime.now(datetime.UTC)
    short = authority.issue_cert(
        "127.0.0.1", not_before=now - datetime.timedelta(days=1), not_after=now + datetime.timedelta(seconds=60)
    )
    server = stage.server(f"--ssl_config_file={_ssl(stage, short)}")
    flags = ["--tls", f"--root_certificates={stage.folder}/root.pem"]
    gateway = stage.gateway(server.target, *flags)
    check(answers(gateway.ports), "no answer by a certificate that holds")
    time.sleep(max(0.0, 62 - (datetime.datetime.now(datetime.UTC) - now).total_seconds()))
    # New connections alone are checked.
    server.end()
    server = stage.server(f"--ssl_config_file={_ssl(stage, short)}", ports=server.ports)
    time.sleep(3)
    _check_retry_later(gateway)
    server.end()
    stage.server(f"--ssl_config_file={_ssl(stage, authority.issue_cert('127.0.0.1'))}", ports=server.ports)
    wait_for(lambda: answers(gateway.ports), "the gateway answers by a new certificate")
    return "503 while it was over, then answers"


def _ssl(stage: Stage, certificate) -> str:
    key = certificate.private_key_pem.bytes().decode()
    chain = "".join(blob.bytes().decode() for blob in certificate.cert_chain_pems)
    path = stage.folder / "ssl.config"
    path.write_text(f"server_key: {_quoted(key)} server_cert: {_quoted(chain)}")
    return str(path)


def _quoted(text: str) -> str:
    return '"' + text.replace("\n", "\\n") + '"'


@row(
    "dns-fails",
    "the name of the gateway's model server is not found, then found, then not",
    "503 with Retry-After; back by itself",
)
def dns_fails(stage: Stage) -> str:
    server = stage.server()
    with _names() as (port, found):
        target = f"dns://127.0.0.1:{port}/model.test:{server.port}"
        gateway = stage.gateway(target, live=False)
        _check_retry_later(gateway)
        with Client(Connection(target, attempts=1), "m", timeout_s=5) as client:
            try:
                client.status()
            except ServingError as error:
                said = str(error).splitlines()[0]
            else:
                raise Failed("a name that is not found was found")
        found.set()
        wait_for(lambda: answers(gateway.ports), "the gateway answers once the name is found", 150)
        found.clear()
        check(answers(gateway.ports), "no answer by the connection that is there")
        server.end(signal.SIGKILL)
        _check_retry_later(gateway)
    return said[:120]


@contextlib.contextmanager
def _names() -> Iterator[tuple[int, threading.Event]]:
    """A name server of one address: fails until the event is set."""
    found, stop = threading.Event(), threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", free_port()))

        def serve() -> None:
            while not stop.is_set():
                if not select.select([listening], [], [], 0.2)[0]:
                    continue
                query, sender = listening.recvfrom(2000)
                question = query[12 : query.index(b"\0", 12) + 5]
                is_address = question[-4:-2] == b"\0\1"
                count, code = int(found.is_set() and is_address), 0 if found.is_set() else 2
                answer = b"\xc0\x0c\0\1\0\1" + struct.pack(">IH", 1, 4) + socket.inet_aton("127.0.0.1")
                head = query[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, count, 0, 0)
                listening.sendto(head + question + answer * count, sender)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1], found
        finally:
            stop.set()
            thread.join()

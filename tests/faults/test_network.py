"""Connections that are slow, silent or too many, names that are not found, certificates that expire."""

import contextlib
import datetime
import json
import select
import signal
import socket
import struct
import threading
import time

import pytest
import trustme

from serving.client import Client, Connection, ServingError
from tests.faults.stage import answers, ask, load, wait_for
from tests.servers import free_port

pytestmark = [pytest.mark.slow("faults"), pytest.mark.timeout(900)]

_BODY = b'{"inputs": "a text"}'
_HEAD = b"POST /embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n"


def _connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def _close(connections):
    for connection in connections:
        connection.close()


def _is_closed(connection):
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


def _check_retry_later(gateway):
    status, headers, body = ask(gateway.http, "/embed", b'{"inputs": "a"}')
    assert status == 503 and "retry-after" in headers, f"HTTP {status}: {body[:100]!r}"


def test_others_are_answered_beside_180_clients_that_send_a_byte_a_second_and_slow_heads_are_closed(stage):
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
    counts.check_all_answered()
    left = sum(not _is_closed(connection) for connection, _ in slow[:60])
    assert not left, f"{left} of 60 slow heads are still connected"
    _close(connection for connection, _ in slow + bodies)
    assert answers(ports), "no answer afterwards"


def test_300_silent_clients_are_closed_and_others_answered(stage):
    server, gateway, ports = stage.server_and_gateway()
    before = server.open_files, gateway.open_files
    silent = [_connect(port) for port in (server.rest, gateway.http) for _ in range(150)]
    for number, connection in enumerate(silent):
        connection.sendall(_HEAD[:40] if number % 2 else _HEAD + _BODY)
    with load(ports) as counts:
        wait_for(lambda: all(map(_is_closed, silent)), "silent connections are closed", 45)
    _close(silent)
    counts.check_all_answered()
    wait_for(lambda: server.open_files <= before[0] + 10 and gateway.open_files <= before[1] + 10, "files are closed")


def test_others_are_answered_beside_10000_connections_whose_files_are_closed_afterwards(stage):
    server, gateway, ports = stage.server_and_gateway()
    for process, port in ((server, server.rest), (gateway, gateway.http), (server, server.port)):
        before = process.open_files
        opened = []
        try:
            for _ in range(10_000):
                opened.append(_connect(port))
        except OSError as error:
            _close(opened)
            pytest.skip(f"{len(opened):,} connections, then: {error.strerror} (ulimit -n)")
        assert answers(ports), "no answer beside 10,000 connections"
        _close(opened)
        wait_for(lambda: process.open_files < before + 100, "the files are closed")  # noqa: B023
        assert answers(ports), "no answer afterwards"


def test_servers_without_files_neither_end_nor_spin_and_answer_again(stage):
    server, gateway, ports = stage.server_and_gateway(files=256)
    for process, port in ((server, server.rest), (gateway, gateway.http), (server, server.port)):
        opened = [_connect(port) for _ in range(400)]
        time.sleep(2)
        begin = process.cpu_seconds()
        time.sleep(5)
        used = process.cpu_seconds() - begin
        assert process.runs, f"the process ended: {process.last_line}"
        assert used < 2.5, f"{used:.1f} s of the CPU in 5 s of waiting at port {port}"
        _close(opened)
        wait_for(lambda: answers(ports), "answers once the connections are gone", 40)


def test_an_expired_certificate_is_503_with_retry_after_until_there_is_another(stage):
    authority = trustme.CA()
    (stage.folder / "root.pem").write_bytes(authority.cert_pem.bytes())
    now = datetime.datetime.now(datetime.UTC)
    short = authority.issue_cert(
        "127.0.0.1", not_before=now - datetime.timedelta(days=1), not_after=now + datetime.timedelta(seconds=60)
    )
    server = stage.server(f"--ssl_config_file={_ssl(stage, short)}")
    flags = ["--tls", f"--root_certificates={stage.folder}/root.pem"]
    gateway = stage.gateway(server.target, *flags)
    assert answers(gateway.ports), "no answer by a certificate that holds"
    time.sleep(max(0.0, 62 - (datetime.datetime.now(datetime.UTC) - now).total_seconds()))
    # New connections alone are checked.
    server.end()
    server = stage.server(f"--ssl_config_file={_ssl(stage, short)}", ports=server.ports)
    time.sleep(3)
    _check_retry_later(gateway)
    server.end()
    stage.server(f"--ssl_config_file={_ssl(stage, authority.issue_cert('127.0.0.1'))}", ports=server.ports)
    wait_for(lambda: answers(gateway.ports), "the gateway answers by a new certificate")


def _ssl(stage, certificate):
    key = certificate.private_key_pem.bytes().decode()
    chain = "".join(blob.bytes().decode() for blob in certificate.cert_chain_pems)
    path = stage.folder / "ssl.config"
    path.write_text(f"server_key: {json.dumps(key)} server_cert: {json.dumps(chain)}")
    return str(path)


def test_a_name_that_is_not_found_is_503_with_retry_after_until_it_is_found(stage):
    server = stage.server()
    with _names() as (port, found):
        target = f"dns://127.0.0.1:{port}/model.test:{server.port}"
        gateway = stage.gateway(target, live=False)
        _check_retry_later(gateway)
        with Client(Connection(target, attempts=1), "m", timeout_s=5) as client, pytest.raises(ServingError):
            client.status()
        found.set()
        wait_for(lambda: answers(gateway.ports), "the gateway answers once the name is found", 150)
        found.clear()
        assert answers(gateway.ports), "no answer by the connection that is there"
        server.end(signal.SIGKILL)
        _check_retry_later(gateway)


@contextlib.contextmanager
def _names():
    """A name server of one address: fails until the event is set."""
    found, stop = threading.Event(), threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", free_port()))

        def serve():
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

"""Clients of a model server without a model, and a TCP relay that counts and cuts what is between them."""

import contextlib
import functools
import socket
import threading

import pytest
import trustme

from serving.client import Client, Connection
from tests.stand_in import IDS, StandIn


@contextlib.contextmanager
def connected(behaviour=None, inputs=IDS, options=None, **connection):
    """A client of a server that behaves so; `options`: of the client, the others of the connection."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(StandIn(behaviour, inputs=inputs))
        yield stack.enter_context(Client(Connection(server.target, **connection), "default", **options or {}))


def write_certificates(folder):
    """Keys and certificates of a server and a client, whom an authority knows; gives the client's files by flags."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    for name, identities in (("server", ("models.example", "127.0.0.1")), ("client", ("someone.example",))):
        signed = authority.issue_cert(*identities)
        signed.private_key_pem.write_to_path(folder / f"{name}.key")
        signed.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
    flags = {"root_certificates": "authority.pem", "client_key": "client.key", "client_certificate": "client.pem"}
    return {flag: str(folder / name) for flag, name in flags.items()}


class Relay:
    """Forwards 127.0.0.1:port to a target and counts the bytes the client sends."""

    def __init__(self, stack, target):
        host, port = target.rsplit(":", 1)
        self._upstream = (host, int(port))
        self._listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        stack.callback(self.cut)
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent_bytes, self._deaths = 0, 0
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                ends = [self._listener.accept()[0], socket.create_connection(self._upstream)]
                self._sockets += ends
                for source, sink in (ends, ends[::-1]):
                    threading.Thread(
                        target=self._pump, args=(source, sink, source is ends[0], self._deaths), daemon=True
                    ).start()

    def _pump(self, source, sink, counted, deaths):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.sent_bytes += len(data) if counted else 0
                if deaths == self._deaths:
                    sink.sendall(data)

    def die(self):
        """Lets open connections swallow all bytes, as a lost network does; new ones work."""
        self._deaths += 1

    def cut(self):
        """Breaks every open connection; new ones are taken."""
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()


@pytest.fixture
def relay():
    with contextlib.ExitStack() as stack:
        yield functools.partial(Relay, stack)

"""A TCP relay that counts and cuts, for what happens between client and server."""

import contextlib
import socket
import threading

import pytest


class Relay:
    """Forwards 127.0.0.1:port to a target and counts the bytes the client sends."""

    def __init__(self, target: str):
        host, port = target.rsplit(":", 1)
        self._upstream = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent_bytes = 0
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._upstream)
            self._sockets += [client, server]
            threading.Thread(target=self._pump, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, False), daemon=True).start()

    def _pump(self, source, sink, counted):
        try:
            while data := source.recv(65536):
                self.sent_bytes += len(data) if counted else 0
                sink.sendall(data)
        except OSError:
            pass

    def cut(self):
        """Breaks every open connection; new ones are taken."""
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def close(self):
        self._listener.close()
        self.cut()


@pytest.fixture
def relay():
    relays = []

    def make(target: str) -> Relay:
        relays.append(Relay(target))
        return relays[-1]

    yield make
    for one in relays:
        one.close()

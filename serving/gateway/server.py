"""A gateway on a port, in its own process or on a thread."""

import asyncio
import logging
import signal
import threading

from serving.gateway.app import Gateway
from serving.gateway.service import GatewayOptions
from serving.http_protocol import listen, make_server
from tfrecords.base.errors import UserError


class GatewayServer:
    """A gateway that opens its port at once (0: a free port) and answers after `run` or `start`.

    Raises UserError if the port cannot be opened.

    At the end it waits up to `drain_s` seconds for running requests.
    """

    def __init__(self, options: GatewayOptions, address: str, port: int, drain_s: float = 20.0):
        try:
            self._socket = listen(address, port)
        except OSError as error:
            raise UserError(f"cannot listen on {address}:{port}: {error.strerror}; choose another --port") from error
        self.port = self._socket.getsockname()[1]
        self.gateway = Gateway(options)
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._server = make_server(self.gateway.asgi, "on", drain_s, answers_half_closed=False)
        self._thread = threading.Thread(target=self._serve, name="gateway")

    def run(self) -> None:
        """Answers until SIGTERM or SIGINT; a second signal ends it at once. SIGHUP opens the access log anew."""
        signal.signal(signal.SIGHUP, lambda *_: self.gateway.log.reopen())
        # uvicorn raises a signal again when it is done; after SIGTERM that is a good end.
        signal.signal(signal.SIGTERM, lambda *_: None)
        self._serve()

    def start(self) -> None:
        self._thread.start()

    def stop(self, drain_s: float | None = None) -> None:
        if drain_s is not None:
            self._server.config.timeout_graceful_shutdown = drain_s
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve([self._socket]))

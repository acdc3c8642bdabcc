"""Putting the parts together in the order that start and stop need."""

import logging

from serving.model_server.core import ServerCore
from serving.model_server.flags import Options
from serving.model_server.grpc_server import GrpcServer
from serving.model_server.status import invalid_argument

_LOG = logging.getLogger(__name__)


class ModelServer:
    """The whole server. Ports open only once every configured model is available."""

    def __init__(self, options: Options):
        """Raises ServingError for options that exclude each other or files that do not read."""
        if not options.model_config_file and not options.model_base_path:
            raise invalid_argument(
                "Both server_options.model_base_path and server_options.model_config_file are empty!"
            )
        self.core = ServerCore(options)
        self._grpc: GrpcServer | None = None

    def start(self) -> None:
        """Raises ServingError when a model does not load or a port does not open."""
        self.core.start()
        options = self.core.options
        if self.core.interrupted.is_set():
            return
        if options.port or options.grpc_socket_path:
            self._grpc = GrpcServer(self.core)
            _LOG.info("Running gRPC ModelServer at %s:%d ...", options.bind_address, options.port)

    def interrupt(self) -> None:
        """Ends a start that waits for models. Safe in a signal handler."""
        self.core.interrupted.set()

    def stop(self, grace: float | None = None) -> None:
        """Takes no new requests, finishes those that run, unloads."""
        if self._grpc is not None:
            self._grpc.stop(grace)
        self.core.close()

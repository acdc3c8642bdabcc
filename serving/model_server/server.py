import logging
import socket
import threading
import time

from grpc import StatusCode

from serving.client import Connection
from serving.model_server import configuration
from serving.model_server.core import ServerCore
from serving.model_server.flags import ServerOptions
from serving.model_server.grpc_server import GrpcServer
from serving.model_server.rest import RestApi, RestServer
from serving.model_server.status import StatusError, invalid_argument
from serving.model_server.telemetry import RequestLog
from serving.wire.protos import MonitoringConfig
from tfrecords.base.errors import refuse

_LOG = logging.getLogger(__name__)
_METRICS_PATH = "/monitoring/prometheus/metrics"


class ModelServer:
    """The model server; ports open once every configured model is available."""

    def __init__(self, options: ServerOptions):
        _check(options)
        self._credentials = configuration.server_credentials(options.ssl_config_file)
        self._metrics_path = _metrics_path(options)
        self.access_log = RequestLog(options.access_log)
        self.core = ServerCore(options)
        self._grpc: GrpcServer | None = None
        self._rest: RestServer | None = None
        self._gateway = None
        self._config_poll = threading.Thread(target=self._poll_config, name="config-poll", daemon=True)

    def start(self) -> bool:
        """Starts serving; returns False if interrupted before every model was available."""
        options = self.core.options
        _check_ports(options)
        self.core.start()
        if self.core.interrupted.is_set():
            return False
        if options.rest_api_port and options.rest_api_port == options.port:
            _LOG.error("--rest_api_port cannot be same as --port. Skipped exporting HTTP/REST API.")
        elif options.rest_api_port:
            api = RestApi(self.core, self.access_log, self._metrics_path)
            # Its port is taken before gRPC answers, so that a start that fails has served nobody.
            self._rest = RestServer(api, options.address("rest"), options.rest_api_port, options.rest_api_num_threads)
        if options.gateway_port:
            self._gateway = _make_gateway(options, self.core.model_names)
        if options.port or options.grpc_socket_path:
            self._grpc = GrpcServer(self.core, self.access_log, self._credentials)
            _LOG.info("Running gRPC ModelServer at %s:%d ...", options.address("grpc"), options.port)
        if self._rest:
            self._rest.start()
            _LOG.info("Exporting HTTP/REST API at:%s:%d ...", options.address("rest"), options.rest_api_port)
            if self._credentials:
                _LOG.warning(
                    "--ssl_config_file protects gRPC only, as in the real server: the REST port %d takes plain HTTP "
                    "from anyone who reaches it, without a certificate. Leave out --rest_api_port, or shield it.",
                    options.rest_api_port,
                )
        if self._gateway:
            self._gateway.start()
            _LOG.info("Gateway at http://%s:%d/docs ...", options.bind_address, options.gateway_port)
        if options.model_config_file and options.model_config_file_poll_wait_seconds > 0:
            self._config_poll.start()
        return True

    def interrupt(self) -> None:
        """Ends a start that waits for models. Safe in a signal handler."""
        self.core.interrupted.set()

    def stop(self, grace: float | None = None) -> None:
        """Refuses new requests, waits up to `grace` seconds (None = no limit) for running ones, and unloads."""
        self.interrupt()
        end = None if grace is None else time.monotonic() + grace

        def left() -> float | None:
            return None if end is None else max(0.0, end - time.monotonic())

        if self._rest is not None:
            self._rest.refuse_new(grace)
        if self._gateway is not None:
            # Before gRPC, by which its requests come.
            self._gateway.stop(left())
        if self._grpc is not None:
            self._grpc.stop(left())
        if self._rest is not None:
            self._rest.stop(left())
        if self._config_poll.is_alive():
            self._config_poll.join()
        self.core.close()
        self.access_log.close()

    def _poll_config(self) -> None:
        wait = self.core.options.model_config_file_poll_wait_seconds
        while not self.core.interrupted.wait(wait):
            self.core.reread()


def _check(options: ServerOptions) -> None:
    refuse({
        "Both server_options.model_base_path and server_options.model_config_file are empty!":
            not (options.model_config_file or options.model_base_path),
        "server_options.batching_parameters_file is set without setting server_options.enable_batching to true.":
            options.batching_parameters_file and not options.enable_batching,
        "--gateway_api_key_file is for the gateway alone: give --gateway_port, or leave it out":
            options.gateway_api_key_file and not options.gateway_port,
        "--use_alts_credentials is not offered by this server": options.use_alts_credentials,
        "--gateway_port needs a plain gRPC --port; start serving.gateway itself before a TLS one":
            options.gateway_port and (options.ssl_config_file or not options.port),
    }, invalid_argument)  # fmt: skip


def _check_ports(options: ServerOptions) -> None:
    places = [(options.address("rest"), options.rest_api_port), (options.bind_address, options.gateway_port)]
    # With arguments of its own, gRPC may share a port.
    if not options.grpc_channel_arguments:
        places.insert(0, (options.address("grpc"), options.port))
    for address, port in places:
        if not port:
            continue
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                message = f"Cannot listen on {address}:{port}: {error.strerror.lower()}"
                raise StatusError(StatusCode.UNAVAILABLE, message) from error


def _make_gateway(options: ServerOptions, models: tuple[str, ...]):
    try:
        from serving.gateway import app, keys
    except ModuleNotFoundError as error:
        message = f"--gateway_port needs {error.name}: pip install '.[gateway]'"
        raise StatusError(StatusCode.FAILED_PRECONDITION, message) from error
    # No alarm (B104): the address is compared, not bound.
    host = "127.0.0.1" if options.address("grpc") == "0.0.0.0" else options.address("grpc")  # nosec B104
    host = f"[{host}]" if ":" in host else host
    known = keys.Keys.read(options.gateway_api_key_file) if options.gateway_api_key_file else None
    gateway = app.Gateway(Connection(f"{host}:{options.port}", attempts=2), models, known)
    return app.GatewayServer(gateway, options.bind_address, options.gateway_port)


def _metrics_path(options: ServerOptions) -> str | None:
    if not options.monitoring_config_file:
        return None
    config = configuration.read_text_proto(options.monitoring_config_file, MonitoringConfig()).prometheus_config
    path = config.path or _METRICS_PATH
    if not path.startswith("/") or "?" in path:
        raise invalid_argument(f"The path of prometheus_config is '{path}': it must begin with a slash and have no '?'")
    return path if config.enable else None

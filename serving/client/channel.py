"""Server connections."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from tfrecords.base.errors import UserError, refuse

# gRPC itself makes no more than this many attempts, whatever the policy says.
MAX_ATTEMPTS = 5
# The schemes of gRPC's names.
_SCHEMES = ("dns", "ipv4", "ipv6", "unix", "xds", "passthrough")
COMPRESSION = {
    None: grpc.Compression.NoCompression,
    "gzip": grpc.Compression.Gzip,
    "deflate": grpc.Compression.Deflate,
}
# A server with gRPC's defaults ends a connection at the fourth ping without an answer of its own in between, unless
# they are 5 minutes apart. gRPC sends the first two after 20 s each and one a minute from then on: calls of up to
# PINGED_CALL_S end before the fourth, and idle connections before the first.
PINGED_CALL_S = 100.0
_ANSWER_TO_PING = (("grpc.keepalive_timeout_ms", 20_000), ("grpc.http2.ping_timeout_ms", 20_000))
_PINGS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.client_idle_timeout_ms", 20_000),
    *_ANSWER_TO_PING,
)
_RARE_PINGS = (("grpc.keepalive_time_ms", 310_000), *_ANSWER_TO_PING)


@dataclass(frozen=True)
class Connection:
    """The address of a server, and options of the connection.

    >>> Connection("127.0.0.1:8500", compression="gzip").attempts
    4

    Attributes:
        target: HOST:PORT, or unix:/path of --grpc_socket_path. If the host has several addresses, calls alternate.
        tls: whether the port uses TLS.
        root_certificates: PEM file to trust instead of the system's.
        client_certificate, client_key: PEM files for mutual TLS (client_verify).
        server_name: the name in the server's certificate, if not the host in `target`.
        compression: how requests are compressed: None, "gzip" or "deflate".
        attempts: per call, 1 to 5; UNAVAILABLE and RESOURCE_EXHAUSTED are retried. A request that no
            server received is always sent again.
    """

    target: str
    tls: bool = False
    root_certificates: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    server_name: str | None = None
    compression: str | None = None
    attempts: int = 4

    def __post_init__(self) -> None:
        url = re.fullmatch(r"(\w+)://([^/]*)(/.*)?", self.target)
        scheme, host = url.group(1, 2) if url else ("", "")
        tls = " and --tls" if scheme in ("https", "grpcs") else ""
        refuse({
            f"target '{self.target}' is a URL; give HOST:PORT alone, here {host}{tls}: the gRPC port of "
            "TensorFlow Serving is 8500 by default, 8501 is that of REST": scheme and scheme not in _SCHEMES,
            f"target '{self.target}' is not HOST:PORT; TensorFlow Serving's gRPC port is 8500 by default":
                not re.fullmatch(r"(unix:.+|.+:\d+)", self.target),
            f"compression '{self.compression}' is unknown; choose gzip or deflate, or none":
                self.compression not in COMPRESSION,
            f"attempts is {self.attempts}; gRPC makes 1 to {MAX_ATTEMPTS}": not 1 <= self.attempts <= MAX_ATTEMPTS,
            "a client certificate and its key go together; give both or neither":
                (self.client_certificate is None) != (self.client_key is None),
        })  # fmt: skip

    def open(self, pings: bool = False, own_connection: bool = False) -> grpc.Channel:
        """Opens a channel; with `own_connection` it does not share the TCP connection of other channels.

        With `pings`, for calls of up to PINGED_CALL_S, a connection that died without a word is replaced within a
        minute; else within six.
        """
        # Channels share connections by a pool of the process, unless they have their own.
        return self._open(grpc.insecure_channel, grpc.secure_channel, pings, own_connection)

    def open_async(self, pings: bool = False) -> grpc.aio.Channel:
        return self._open(grpc.aio.insecure_channel, grpc.aio.secure_channel, pings)

    def _open(self, insecure: Callable, secure: Callable, pings: bool, own_connection: bool = False) -> Any:
        options = [*self._options(), *(_PINGS if pings else _RARE_PINGS)]
        options.append(("grpc.use_local_subchannel_pool", int(own_connection)))
        compression = COMPRESSION[self.compression]
        if self.tls or self.root_certificates or self.client_certificate:
            return secure(self.target, self._credentials(), options=options, compression=compression)
        return insecure(self.target, options=options, compression=compression)

    def _credentials(self) -> grpc.ChannelCredentials:
        paths = (self.root_certificates, self.client_key, self.client_certificate)
        try:
            return grpc.ssl_channel_credentials(*[path and _read_pem(path) for path in paths])
        except OSError as error:
            raise UserError(f"cannot read certificate file '{error.filename}': {error.strerror}") from error

    def _options(self) -> list[tuple[str, int | str]]:
        options: list[tuple[str, int | str]] = [
            # gRPC's default refuses answers over 4 MB: hidden states of one long batch.
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            # A short pause between connection attempts, so that a retry finds a restarted server.
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            # Proxies of the environment are for the web.
            ("grpc.enable_http_proxy", 0),
            ("grpc.service_config", json.dumps(self._service_config())),
        ]
        if self.server_name:
            options.append(("grpc.ssl_target_name_override", self.server_name))
        return options

    def _service_config(self) -> dict:
        # gRPC's own choice would send everything to the first of the addresses that a name has.
        balanced: dict = {"loadBalancingConfig": [{"round_robin": {}}]}
        if self.attempts == 1:
            return balanced
        policy = {
            "maxAttempts": self.attempts,
            # gRPC draws the waiting time at random, up to this.
            "initialBackoff": "0.1s",
            "maxBackoff": "1s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
        }
        return balanced | {"methodConfig": [{"name": [{}], "retryPolicy": policy}]}


def _read_pem(path: str) -> bytes:
    """Returns a PEM file's bytes; raises UserError for other files, with which gRPC would never connect."""
    content = Path(path).read_bytes()
    if b"-----BEGIN " not in content:
        raise UserError(f"certificate file '{path}' is no PEM file: it has no line '-----BEGIN ...'")
    return content

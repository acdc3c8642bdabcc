"""The flags of every command that connects to a model server."""

from dataclasses import dataclass
from typing import Any

from serving.client.channel import Connection
from tfrecords.base.settings import CheckedSettings, setting

TLS_FLAGS = ("tls", "root_certificates", "client_certificate", "client_key")


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings(CheckedSettings):
    """The server's address, and how to trust it and to be trusted."""

    target: str = setting("127.0.0.1:8500", help="HOST:PORT of the model server's gRPC port")
    tls: bool = setting(False, help="use TLS to connect to the server; the next three flags imply it")
    root_certificates: str = setting("", help="PEM file of certificates to trust; empty: the system's")
    client_certificate: str = setting("", help="PEM file of this client's certificate, for servers that ask for one")
    client_key: str = setting("", help="PEM file of the key of --client_certificate")

    def connection(self, **options: Any) -> Connection:
        """Returns the connection; `options` are further attributes of Connection."""
        trust: dict[str, Any] = {name: getattr(self, name) or None for name in TLS_FLAGS}
        return Connection(self.target, **trust, **options)


@dataclass(frozen=True, kw_only=True)
class ModelSettings(ConnectionSettings):
    """A server's address, and the model to call there."""

    model: str = setting("default", help="name of the model")
    version: int | None = setting(None, help="version of the model; left out: the newest")
    label: str | None = setting(None, help="version label, instead of --version")
    signature: str = setting("serving_default", help="signature to call")
    timeout_s: float = setting(30.0, help="seconds to wait for an answer, retries included", above=0)

    def asked(self) -> dict[str, Any]:
        """Returns the arguments of a client."""
        names = ("model", "version", "label", "signature", "timeout_s")
        return {"target": self.connection()} | {name: getattr(self, name) for name in names}

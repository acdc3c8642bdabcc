"""--ssl_config_file: a text SSLConfig whose fields hold PEM text itself."""

from concurrent.futures import ThreadPoolExecutor

import grpc

from serving.model_server.configuration import read_text_proto
from serving.model_server.status import invalid_argument
from serving.wire.protos import SSLConfig


def server_credentials(path: str) -> grpc.ServerCredentials | None:
    """Credentials of the gRPC port; None without a path. With client_verify, clients must show a certificate that
    custom_ca signed. Raises StatusError."""
    if not path:
        return None
    config = read_text_proto(path, SSLConfig())
    for field in ("server_key", "server_cert"):
        if "-----BEGIN" not in getattr(config, field):
            raise invalid_argument(f"{field} in '{path}' must be PEM text (not a file's name)")
    roots = config.custom_ca.encode() or None
    if config.client_verify and roots is None:
        raise invalid_argument(f"client_verify in '{path}' needs custom_ca to verify clients with")
    pair = (config.server_key.encode(), config.server_cert.encode())
    if not _are_usable(grpc.ssl_server_credentials([pair])):
        raise invalid_argument(
            f"server_key and server_cert in '{path}' cannot be used: both must be valid PEM text, the key without a "
            "password and the certificate made for this key"
        )
    credentials = grpc.ssl_server_credentials([pair], roots, require_client_auth=config.client_verify)
    if not _are_usable(credentials):
        raise invalid_argument(f"custom_ca in '{path}' holds no certificate that can be read")
    return credentials


def _are_usable(credentials: grpc.ServerCredentials) -> bool:
    """gRPC reads keys only when it opens a port, and its failure then looks like that of a port in use: so a port that
    is free for certain is opened, on a server that never starts."""
    server = grpc.server(ThreadPoolExecutor(1))
    try:
        return bool(server.add_secure_port("127.0.0.1:0", credentials))
    except RuntimeError:
        return False
    finally:
        server.stop(None)

"""--ssl_config_file: a text SSLConfig whose fields hold PEM text itself."""

import grpc

from serving.model_server.configuration import read_text_proto
from serving.model_server.protos import SSLConfig
from serving.model_server.status import invalid_argument


def server_credentials(path: str) -> grpc.ServerCredentials | None:
    """Credentials of the gRPC port; None without a path. With client_verify, clients must show a certificate that
    custom_ca signed. Raises ServingError."""
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
    return grpc.ssl_server_credentials([pair], roots, require_client_auth=config.client_verify)

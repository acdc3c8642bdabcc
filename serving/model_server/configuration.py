"""Reads and checks configuration files: models, labels and TLS."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import grpc
from google.protobuf import text_format
from google.protobuf.message import Message
from grpc import StatusCode

from serving.model_server.flags import ServerOptions
from serving.model_server.status import StatusError, invalid_argument
from serving.wire.protos import ModelConfig, ModelServerConfig, SSLConfig
from tfrecords.base.errors import refuse
from tfrecords.base.files import read_limited

M = TypeVar("M", bound=Message)
_PLATFORM = "tensorflow"
# The value of the deprecated `model_type`.
_TENSORFLOW = 1


def read_text_proto(path: str, message: M) -> M:
    """Fills `message` from a text-format file; raises StatusError if that fails."""
    text = ""
    try:
        text = read_limited(path).decode()
        text_format.Parse(text, message)
    except OSError as error:
        raise StatusError(StatusCode.NOT_FOUND, f"{path}; {error.strerror}") from error
    except (text_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise invalid_argument(
            f"Invalid protobuf file: '{path}': Error parsing text-format {message.DESCRIPTOR.full_name}: "
            + _without_quoted_line(str(error), text)
        ) from error
    return message


def _without_quoted_line(complaint: str, text: str) -> str:
    # Removes the quoted line, which may hold a private key, from a parser's message.
    for line in text.split("\n"):
        complaint = complaint.replace(f"'{line}': ", "")
    return complaint


def server_config(options: ServerOptions) -> ModelServerConfig:
    """Returns the models that the flags configure."""
    if options.model_config_file:
        return read_text_proto(options.model_config_file, ModelServerConfig())
    config = ModelServerConfig()
    config.model_config_list.config.add(
        name=options.model_name, base_path=options.model_base_path, model_platform=_PLATFORM
    )
    return config


def checked_models(config: ModelServerConfig, old: dict[str, ModelConfig]) -> dict[str, ModelConfig]:
    """Returns configurations by model name; StatusError if one may not replace the model's `old` configuration."""
    if old and config.WhichOneof("config") != "model_config_list":
        # An empty file, too: a writer that truncates it first must not unload every model.
        raise StatusError(
            StatusCode.FAILED_PRECONDITION,
            "Cannot transition to requested config. It is only legal to transition from one ModelConfigList to "
            "another.",
        )
    if config.WhichOneof("config") == "custom_model_config":
        raise StatusError(StatusCode.UNIMPLEMENTED, "custom_model_config is not offered; use model_config_list")
    models: dict[str, ModelConfig] = {}
    for model in config.model_config_list.config:
        refuse({f"Illegal to list model {model.name} multiple times in config list": model.name in models},
               invalid_argument)  # fmt: skip
        models[model.name] = model
    for name, model in models.items():
        path, platform = model.base_path, _platform_of(model)
        before = _platform_of(old.get(name, model))
        refuse({
            f"The model at {path} has no name, so no request could ask it: give name": not name,
            f"The base path of model {name} is {path}, and this server reads folders alone; copy it to one, or mount "
            "it": "://" in path,
            f"Expected model {name} to have an absolute path or URI; got base_path()={path}": not path.startswith("/"),
            f"The base path of model {name} holds a NUL character: {path!r}": "\0" in path,
            f"Illegal to change a model's platform. For model {name} platform was {before} and new platform requested "
            f"is {platform}": before != platform,
            f"Model {name} requests unsupported platform {platform}": platform != _PLATFORM,
        }, invalid_argument)  # fmt: skip
    return models


def _platform_of(model: ModelConfig) -> str:
    # `model_type` is deprecated.
    return model.model_platform or (_PLATFORM if model.model_type == _TENSORFLOW else "")


def checked_labels(
    models: dict[str, ModelConfig],
    old: dict[str, dict[str, int]],
    available: Callable[[str], list[int]],
    allow_new: bool,
) -> dict[str, dict[str, int]]:
    """Returns versions by model name and label.

    A label must name a version that is `available`; with `allow_new`, a new label may name any.
    """
    for model in models.values():
        for label, version in model.version_labels.items():
            free = allow_new and old.get(model.name, {}).get(label, version) == version
            if not free and version not in available(model.name):
                raise StatusError(
                    StatusCode.FAILED_PRECONDITION,
                    f"Request to assign label to version {version} of model {model.name}, "
                    "which is not currently available for inference",
                )
    return {name: dict(model.version_labels) for name, model in models.items()}


def server_credentials(path: str) -> grpc.ServerCredentials | None:
    """Returns the gRPC port's credentials from --ssl_config_file, a text SSLConfig with PEM texts.

    With client_verify, clients need a certificate signed by custom_ca.
    """
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
    credentials = grpc.ssl_server_credentials([pair], roots, require_client_auth=config.client_verify)
    for tried, complaint in (
        (grpc.ssl_server_credentials([pair]), "server_key and server_cert in '{}' cannot be used: both must be valid "
         "PEM text, the key without a password and the certificate made for this key"),
        (credentials, "custom_ca in '{}' holds no certificate that can be read"),
    ):  # fmt: skip
        if not _are_usable(tried):
            raise invalid_argument(complaint.format(path))
    return credentials


def _are_usable(credentials: grpc.ServerCredentials) -> bool:
    # Returns whether gRPC accepts the keys, by opening a port on a server that never starts.
    server = grpc.server(ThreadPoolExecutor(1))
    try:
        return bool(server.add_secure_port("127.0.0.1:0", credentials))
    except RuntimeError:
        return False
    finally:
        server.stop(None)

"""The model server's configuration messages: reading them from text files, and what makes one unacceptable."""

from pathlib import Path
from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.message import Message
from tensorflow_serving.config import model_server_config_pb2

from serving.model_server.flags import Options
from serving.model_server.status import FAILED_PRECONDITION, NOT_FOUND, UNIMPLEMENTED, StatusError, invalid_argument

M = TypeVar("M", bound=Message)
ModelConfig = model_server_config_pb2.ModelConfig
ModelServerConfig = model_server_config_pb2.ModelServerConfig
_PLATFORM = "tensorflow"


def read_text_proto(path: str, message: M) -> M:
    """Fills `message` from a text-format file. Raises StatusError."""
    text = ""
    try:
        text = Path(path).read_text(encoding="utf-8")
        text_format.Parse(text, message)
    except OSError as error:
        raise StatusError(NOT_FOUND, f"{path}; {error.strerror}") from error
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise invalid_argument(
            f"Invalid protobuf file: '{path}': Error parsing text-format {message.DESCRIPTOR.full_name}: "
            + _without_quoted_line(str(error), text)
        ) from error
    return message


def _without_quoted_line(complaint: str, text: str) -> str:
    """The parser's message, "line:column : what", less the line itself, which may hold a private key."""
    for line in text.split("\n"):
        complaint = complaint.replace(f"'{line}': ", "")
    return complaint


def server_config(options: Options) -> ModelServerConfig:
    """The models that the flags ask for."""
    if options.model_config_file:
        return read_text_proto(options.model_config_file, ModelServerConfig())
    config = ModelServerConfig()
    config.model_config_list.config.add(
        name=options.model_name, base_path=options.model_base_path, model_platform=_PLATFORM
    )
    return config


def checked_models(config: ModelServerConfig, old: dict[str, ModelConfig]) -> dict[str, ModelConfig]:
    """Model name -> its configuration. Raises StatusError for one that must not take the place of `old`."""
    if old and config.WhichOneof("config") != "model_config_list":
        # An empty file, too: a writer that truncates it first must not unload every model.
        raise StatusError(
            FAILED_PRECONDITION,
            "Cannot transition to requested config. It is only legal to transition from one ModelConfigList to "
            "another.",
        )
    if config.WhichOneof("config") == "custom_model_config":
        raise StatusError(UNIMPLEMENTED, "custom_model_config is not offered; use model_config_list")
    models: dict[str, ModelConfig] = {}
    for model in config.model_config_list.config:
        if model.name in models:
            raise invalid_argument(f"Illegal to list model {model.name} multiple times in config list")
        models[model.name] = model
    for model in models.values():
        platform = platform_of(model)
        if not (model.base_path.startswith("/") or "://" in model.base_path):
            raise invalid_argument(
                f"Expected model {model.name} to have an absolute path or URI; got base_path()={model.base_path}"
            )
        if "\0" in model.base_path:
            raise invalid_argument(f"The base path of model {model.name} holds a NUL character: {model.base_path!r}")
        if model.name in old and platform_of(old[model.name]) != platform:
            raise invalid_argument(
                f"Illegal to change a model's platform. For model {model.name} platform was "
                f"{platform_of(old[model.name])} and new platform requested is {platform}"
            )
        if platform != _PLATFORM:
            raise invalid_argument(f"Model {model.name} requests unsupported platform {platform}")
    return models


def platform_of(model: ModelConfig) -> str:
    """The platform by its new name or by the deprecated type. Raises StatusError when both or neither is set."""
    if model.model_type:
        if model.model_platform:
            raise invalid_argument(
                "Illegal setting both ModelServerConfig::model_type (deprecated) and ModelServerConfig::model_platform."
            )
        return _PLATFORM if model.model_type == model_server_config_pb2.TENSORFLOW else "other"
    if not model.model_platform:
        raise invalid_argument(
            "Illegal setting neither ModelServerConfig::model_type (deprecated) nor ModelServerConfig::model_platform."
        )
    return model.model_platform


def checked_labels(
    models: dict[str, ModelConfig], old: dict[str, dict[str, int]], available: dict[str, list[int]], allow_new: bool
) -> dict[str, dict[str, int]]:
    """Model name -> label -> version. A label may only name an available version; with `allow_new`, one that did not
    exist before may name any. Raises StatusError."""
    for model in models.values():
        for label, version in model.version_labels.items():
            known = old.get(model.name, {})
            free = allow_new and (label not in known or known[label] == version)
            if not free and version not in available.get(model.name, []):
                raise StatusError(
                    FAILED_PRECONDITION,
                    f"Request to assign label to version {version} of model {model.name}, "
                    "which is not currently available for inference",
                )
    return {name: dict(model.version_labels) for name, model in models.items()}

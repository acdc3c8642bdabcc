"""One frozen dataclass per stage is its settings; the command's flags are made from its fields."""

import dataclasses
import typing
from typing import Any, TypeVar

from absl import flags

from tfrecords.errors import UserError

# Flags belong to the script that calls `define_flags`: absl's --help lists those of the main module.
flags.disclaim_key_flags()

Settings = TypeVar("Settings")

_DEFINE = {str: flags.DEFINE_string, int: flags.DEFINE_integer, float: flags.DEFINE_float, bool: flags.DEFINE_bool}


def setting(default: Any = dataclasses.MISSING, *, help: str) -> Any:
    """A dataclass field with the help text of its flag; without a default the flag must be given."""
    return dataclasses.field(default=default, metadata={"help": help})


def define_flags(settings_class: type) -> None:
    """Defines an absl flag for each field of a dataclass whose fields are str, int, float or bool."""
    types = typing.get_type_hints(settings_class)
    for field in dataclasses.fields(settings_class):
        default = None if field.default is dataclasses.MISSING else field.default
        _DEFINE[types[field.name]](field.name, default, field.metadata["help"])


def read_flags(settings_class: type[Settings]) -> Settings:
    """The parsed flags as an instance of the dataclass.

    Raises:
        UserError: naming the flags that have no default and were not given.
    """
    values = {field.name: flags.FLAGS[field.name].value for field in dataclasses.fields(settings_class)}
    missing = [f"--{name}=..." for name, value in values.items() if value is None]
    if missing:
        raise UserError(f"{', '.join(missing)} must be given; --help says what for")
    return settings_class(**values)

"""One frozen dataclass per stage is its settings; the command's flags and settings file are made from its fields."""

import dataclasses
import difflib
import typing
from typing import Any, TypeVar

from absl import flags

from tfrecords.base import files
from tfrecords.base.errors import UserError

# Flags belong to the script that calls `define_flags`: absl's --help lists those of the main module.
flags.disclaim_key_flags()

Settings = TypeVar("Settings")

_DEFINE = {str: flags.DEFINE_string, int: flags.DEFINE_integer, float: flags.DEFINE_float, bool: flags.DEFINE_bool}
_FILE = "settings"


def setting(default: Any = dataclasses.MISSING, *, help: str) -> Any:
    """A dataclass field with the help text of its flag; without a default the flag must be given."""
    return dataclasses.field(default=default, metadata={"help": help})


def define_flags(settings_class: type) -> None:
    """Defines an absl flag for each field of a dataclass whose fields are str, int, float or bool, and --settings.

    A field of type `bool | None` with the default None is a flag that may stay unsaid.
    """
    types = _types(settings_class)
    flags.DEFINE_string(_FILE, None, 'a JSON file of these flags by name, e.g. {"seed": 1}; flags given beside it win')
    for field in dataclasses.fields(settings_class):
        default = None if field.default is dataclasses.MISSING else field.default
        _DEFINE[types[field.name]](field.name, default, field.metadata["help"])


def read_flags(settings_class: type[Settings]) -> Settings:
    """The parsed flags, and what the file of --settings says where a flag was not given, as the dataclass.

    Raises:
        UserError: naming the flags that have no default and were not given, or a key of the file that is no setting,
            with the nearest that is.
    """
    path = flags.FLAGS[_FILE].value
    from_file = read_settings_file(path, settings_class) if path else {}
    given = {field.name: flags.FLAGS[field.name] for field in dataclasses.fields(settings_class)}
    values = {name: flag.value if flag.present else from_file.get(name, flag.value) for name, flag in given.items()}
    optional = {field.name for field in dataclasses.fields(settings_class) if field.default is None}
    missing = [f"--{name}=..." for name, value in values.items() if value is None and name not in optional]
    if missing:
        raise UserError(f"{', '.join(missing)} must be given; --help says what for")
    return settings_class(**values)


def read_settings_file(path: str, settings_class: type) -> dict[str, Any]:
    """The settings that a JSON object names, each of its field's type (a whole number will do for a float).

    Raises:
        UserError: for a file that is no JSON object, an unknown key, or a value of another type.
    """
    values, types = files.read_json(path), _types(settings_class)
    if not isinstance(values, dict):
        raise UserError(f"'{path}' must hold a JSON object of settings, not a {type(values).__name__}")
    for key, value in values.items():
        if key not in types:
            near = difflib.get_close_matches(key, types, n=1, cutoff=0)[0]
            raise UserError(f"'{path}': unknown setting '{key}'; did you mean '{near}'?")
        if types[key] is float and type(value) is int:
            values[key] = float(value)
        elif type(value) is not types[key]:
            raise UserError(f"'{path}': {key} is {value!r}; it must be of type {types[key].__name__}")
    return values


def _types(settings_class: type) -> dict[str, type]:
    """Of each field; of one that may be None what it is otherwise."""
    hints = typing.get_type_hints(settings_class)
    return {
        name: next((one for one in typing.get_args(hint) if one is not type(None)), hint)
        for name, hint in hints.items()
    }

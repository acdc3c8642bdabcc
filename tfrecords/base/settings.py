"""Settings of a command as a frozen dataclass, whose fields define its flags, settings file, checks and --help.

    @dataclass(frozen=True, kw_only=True)
    class ExportSettings(CheckedSettings):
        model: str = setting(help="folder of the model")                     # no default: --model must be given
        inputs: str = setting("ids", help="what goes in", choices=("ids", "text"))

`script.run_main(main, ExportSettings)` runs `main(settings: ExportSettings)` as a command.
"""

import dataclasses
import difflib
import math
import operator
import re
import shutil
import textwrap
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from absl import flags

from tfrecords.base import files
from tfrecords.base.errors import UserError

# Flags belong to the script that calls `define_flags`: absl's --help lists those of the main module.
flags.disclaim_key_flags()

Settings = TypeVar("Settings")

_DEFINE = {
    str: flags.DEFINE_string,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    bool: flags.DEFINE_bool,
    tuple: flags.DEFINE_multi_string,
}
_FILE = "settings"


def setting(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    choices: Sequence[str] = (),
    at_least: float | str | None = None,
    above: float | str | None = None,
    at_most: float | str | None = None,
    below: float | str | None = None,
    also: Mapping[float, str] | None = None,
    flag: str | None = None,
) -> Any:
    """Returns a dataclass field with its flag's help text and allowed values.

    Bounds are numbers or names of other fields. Without `default` the flag is required. `also` maps allowed values
    outside the bounds to their meaning.
    """
    bounds = {"at_least": at_least, "above": above, "at_most": at_most, "below": below}
    metadata = {"help": help, "choices": tuple(choices), "bounds": bounds, "also": also or {}, "flag": flag}
    return dataclasses.field(default=default, metadata=metadata)


class CheckedSettings:
    """Base class of settings that checks each field's value against its `setting`.

    A class that inherits settings may give some of them other defaults, and say what these mean:
    `class Mine(Theirs, defaults={"seed": 1, "size": 0}, meanings={"size": "as many as fit"})`. A field without
    `setting` replaces an inherited one and has no flag.

    The settings of a mode are a class of their own: `class OfPairs(CheckedSettings, only="task=pairs")` refuses all of
    them for another --task. Conditions are "flag" (it is given), "flag=value" and "flag!=value".
    """

    only: ClassVar[str] = ""
    # Flags that a command had before, and what to use instead.
    former: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(
        cls, defaults: Mapping[str, Any] | None = None, meanings: Mapping[str, str] | None = None, only: str = ""
    ):
        cls.only = only
        inherited = {name: field for base in reversed(cls.__mro__[1:]) for name, field in _fields(base).items()}
        for name, default in (defaults or {}).items():
            metadata = dict(inherited[name].metadata)
            if meaning := (meanings or {}).get(name):
                metadata["help"] += f"; {'empty' if default == '' else _plain(default)}: {meaning}"
            setattr(cls, name, dataclasses.field(default=default, metadata=metadata))
            cls.__annotations__ = cls.__annotations__ | {name: inherited[name].type}

    def given(self, names: Iterable[str]) -> str | None:
        """Returns the first setting in `names` with a non-default value, as "--name=value", else None."""
        fields = {field.name: field for field in settings_of(type(self))}
        found = ((fields[name], getattr(self, name)) for name in names if name in fields)
        return next((f"--{flag_name(field)}={value}" for field, value in found if value != field.default), None)

    def __post_init__(self) -> None:
        for field in settings_of(type(self)):
            value = getattr(self, field.name)
            if value is None:
                continue
            if field.metadata["choices"] and value not in field.metadata["choices"]:
                known = ", ".join(filter(None, field.metadata["choices"]))
                raise UserError(f"--{flag_name(field)}={value} is unknown; choose one of {known}")
            if value not in field.metadata["also"]:
                self._check_bounds(field, value)
            if value in (math.inf, -math.inf):
                raise UserError(f"--{flag_name(field)}={value} is no finite number; give one")
        for mode in type(self).__mro__:
            condition = getattr(mode, "only", "")
            if condition and not self._holds(condition) and (given := self.given(_fields(mode))):
                raise UserError(f"{given} is {_mode(condition)}")

    def _holds(self, condition: str) -> bool:
        name, equals, value = condition.partition("=")
        found = getattr(self, name.rstrip("!"))
        return (found == value) != name.endswith("!") if equals else bool(found)

    def _check_bounds(self, field: dataclasses.Field, value: Any) -> None:
        bounds = {name: bound for name, bound in field.metadata["bounds"].items() if bound is not None}
        numbers = {name: getattr(self, bound) if isinstance(bound, str) else bound for name, bound in bounds.items()}
        # `not`, so that NaN fails every check.
        if all(_HOLDS[name](value, number) for name, number in numbers.items()):
            return
        names = {other.name: flag_name(other) for other in settings_of(type(self))}
        said = {
            name: f"--{names[bound]}={numbers[name]}" if isinstance(bound, str) else _plain(bound)
            for name, bound in bounds.items()
        }
        also = "".join(f", or {_plain(allowed)} {meaning}" for allowed, meaning in field.metadata["also"].items())
        raise UserError(f"--{flag_name(field)}={value} must be {_range(**said)}{also}")


def _fields(kind: type) -> dict[str, dataclasses.Field]:
    return getattr(kind, "__dataclass_fields__", {})


def _mode(condition: str) -> str:
    if "=" not in condition:
        return f"for --{condition}; give both, or leave it out"
    return f"{'not ' * ('!' in condition)}for --{condition.replace('!', '')}; leave it out"


_HOLDS = {"at_least": operator.ge, "above": operator.gt, "at_most": operator.le, "below": operator.lt}


def _plain(number: float) -> str:
    return str(int(number) if number == int(number) else number)


def _range(at_least: str = "", above: str = "", at_most: str = "", below: str = "") -> str:
    high = f"below {below}" if below else at_most
    if at_least:
        return f"from {at_least} to {high}" if high else f"{at_least} or more"
    if above:
        return f"above {above} and {high if below else f'at most {high}'}" if high else f"above {above}"
    return high if below else f"at most {high}"


def read_numbers(flag: str, text: str) -> list[int]:
    """Returns the whole numbers of a flag; raises UserError for anything else.

    >>> read_numbers("lengths", "16,64")
    [16, 64]
    """
    try:
        return [int(item) for item in text.split(",") if item.strip()]
    except ValueError as error:
        raise UserError(f"--{flag}={text} is not a comma-separated list of whole numbers") from error


def settings_of(settings_class: type) -> list[dataclasses.Field]:
    """Returns the fields made by `setting`, one per flag."""
    return [field for field in dataclasses.fields(settings_class) if "help" in field.metadata]


def flag_name(field: dataclasses.Field) -> str:
    """Returns a field's flag without dashes."""
    return field.metadata["flag"] or field.name


def former(settings_class: type | None, flag: str) -> str:
    """Returns what to use in place of a flag that a command had before, as a sentence, or ""."""
    known = getattr(settings_class, "former", {})
    instead = known.get(flag) or known.get(flag.removeprefix("no"))
    return f"--{flag} is no flag any more; use {instead}" if instead else ""


def define_flags(settings_class: type, flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines an absl flag for each `setting` of a dataclass, and --settings.

    Fields are str, int, float, bool (each also `| None`), or tuple[str, ...] for a repeatable flag.
    """
    field_types = _types(settings_class)
    file_help = 'a JSON file of these flags by name, e.g. {"seed": 1}; flags given beside it win'
    flags.DEFINE_string(_FILE, None, file_help, flag_values)
    for field in settings_of(settings_class):
        default = None if field.default is dataclasses.MISSING else field.default
        choices = f"<{'|'.join(field.metadata['choices'])}>: " if field.metadata["choices"] else ""
        define = _DEFINE[field_types[field.name]]
        define(flag_name(field), default, choices + field.metadata["help"], flag_values=flag_values)


def read_flags(settings_class: type[Settings], flag_values: flags.FlagValues = flags.FLAGS) -> Settings:
    """Makes settings from the parsed flags and the file of --settings; raises UserError for missing flags."""
    path = flag_values[_FILE].value
    from_file = read_settings_file(path, settings_class) if path else {}
    values, missing = {}, []
    for field in settings_of(settings_class):
        name = flag_name(field)
        flag = flag_values[name]
        value = flag.value if flag.present else from_file.get(name, flag.value)
        # Empty: as of a shell's variable that is not set, and to Path the working directory.
        if (value is None and field.default is not None) or (value == "" and field.default is dataclasses.MISSING):
            missing.append(f"--{name}=...")
        values[field.name] = tuple(value) if isinstance(value, list) else value
    if missing:
        raise UserError(f"{', '.join(missing)} must be given; --help says what for")
    return settings_class(**values)


def read_settings_file(path: str, settings_class: type) -> dict[str, Any]:
    """Reads a JSON file of settings by flag name; raises UserError for an unknown name or a wrong type."""
    values, field_types = files.read_json(path), _types(settings_class)
    by_flag = {flag_name(field): field_types[field.name] for field in settings_of(settings_class)}
    if not isinstance(values, dict):
        raise UserError(f"'{path}' must hold a JSON object of settings, not a {type(values).__name__}")
    for key, value in values.items():
        if key not in by_flag:
            if instead := former(settings_class, key):
                raise UserError(f"'{path}': {instead}")
            near = difflib.get_close_matches(key, by_flag, n=1, cutoff=0)[0]
            raise UserError(f"'{path}': unknown setting '{key}'; did you mean '{near}'?")
        if type(value) is int and by_flag[key] in (float, str):
            values[key] = by_flag[key](value)
        elif by_flag[key] is tuple:
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                raise UserError(f"'{path}': {key} is {value!r}; it must be a list of texts")
        elif type(value) is not by_flag[key]:
            raise UserError(f"'{path}': {key} is {value!r}; it must be of type {by_flag[key].__name__}")
    return values


def _types(settings_class: type) -> dict[str, type]:
    return {name: _plain_type(hint) for name, hint in typing.get_type_hints(settings_class).items()}


def _plain_type(hint: Any) -> type:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return next(_plain_type(one) for one in typing.get_args(hint) if one is not type(None))
    return origin or hint


_INDENT = 26
_VALUES = {"int": "N", "float": "X"}
_LAST = "--settings=FILE reads flags from a JSON file. --version prints the version."


def help_text(settings_class: type, command: str, about: str, full: bool = False, switches: bool = True) -> str:
    """Returns the text of --help, or of --helpfull if `full`.

    --help shows required flags and those in the settings class's `groups`, by title; without `groups`, all flags.
    about: docstring of the command's module. switches: whether bool flags are --name and --noname, not --name=true.
    """
    fields = {flag_name(field): field for field in settings_of(settings_class)}
    required = [name for name, field in fields.items() if field.default is dataclasses.MISSING]
    chosen = {
        title: [name for name in names.split() if name not in required]
        for title, names in getattr(settings_class, "groups", {}).items()
    }
    others = [name for name in fields if name not in {*required, *" ".join(map(" ".join, chosen.values())).split()}]
    groups = {"Required": required, **chosen}
    if full or not chosen:
        groups["More" if chosen else "Flags"] = others
    width = max(60, min(110, shutil.get_terminal_size((110, 24)).columns))
    usage = " ".join(["Usage:", command, *(f"--{name}=..." for name in required), "[--flag=value ...]"])
    lines = [*_wrapped(usage, width, " " * 7), "", re.sub(r"^python -m \S+", command, about, flags=re.MULTILINE)]
    for title, names in groups.items():
        if names:
            lines += ["", f"{title}:", *(line for name in names for line in _flag(fields[name], width, switches))]
    count = f"{len(others)} more flag{'s' if len(others) > 1 else ''}"
    more = f"--helpfull lists {count}. " if chosen and others and not full else ""
    # A command whose switches are written =true reads no settings file.
    return "\n".join([*lines, "", more + (_LAST if switches else "")]).rstrip()


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _flag(field: dataclasses.Field, width: int, switches: bool) -> list[str]:
    text, default = _parts(field)
    name, choices = flag_name(field), "|".join(filter(None, field.metadata["choices"]))
    value = choices or next((sign for kind, sign in _VALUES.items() if kind in str(field.type)), "...")
    if isinstance(field.default, bool) or field.type in ("bool | None", bool | None):
        head = f"  --[no]{name}" if switches else f"  --{name}=true|false"
    else:
        head = f"  --{name}={value}"
    lines = _wrapped(text + (f" (default: {default})" if default else ""), width - _INDENT)
    if len(head) < _INDENT - 1:
        head += " " * (_INDENT - len(head)) + lines.pop(0)
    return [head, *(" " * _INDENT + line for line in lines)]


def _parts(field: dataclasses.Field) -> tuple[str, str]:
    text, default = field.metadata["help"], field.default
    text = text.removesuffix(".") if ". " not in text else text
    if default is True:
        return text, "true"
    if default in ("", None, ()) or default is False or default is dataclasses.MISSING or isinstance(default, tuple):
        return text, ""
    return text, f"{default:g}" if isinstance(default, float) else str(default)

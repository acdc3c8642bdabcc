"""Formats a command's --help: its flags in groups, required ones first."""

import dataclasses
import re
import shutil
import textwrap

from tfrecords.base.settings import flag_name, settings_of

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

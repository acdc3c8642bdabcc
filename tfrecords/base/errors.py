"""The exception for wrong input that the user can correct."""

import difflib
import importlib.util
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

# Characters of a message. A value of a file may have millions.
_LONGEST = 4000


class UserError(ValueError):
    """Wrong input by the user. The message is one line that names the value and the remedy.

    Line breaks and other control characters are escaped, and a long message is shortened in the middle.

    >>> print(UserError("the label 'good\\n\\x1b[2J' is unknown"))
    the label 'good\\n\\x1b[2J' is unknown
    """

    def __str__(self) -> str:
        text = super().__str__()
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"
        return printable(text)


def printable(text: str) -> str:
    """Escapes line breaks, other control characters and invisible characters."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def refuse(complaints: Mapping[str, Any], error: Callable[[str], Exception] = UserError) -> None:
    """Raises `error` with the first complaint whose value is true.

    >>> refuse({"a and b are given; choose one": False, "c is above 3": True})
    Traceback (most recent call last):
    tfrecords.base.errors.UserError: c is above 3
    """
    for complaint, applies in complaints.items():
        if applies:
            raise error(complaint)


def check_truths(**values: Any) -> None:
    """Raises UserError for a value that is neither True nor False.

    >>> check_truths(normalize="no")
    Traceback (most recent call last):
    tfrecords.base.errors.UserError: normalize='no' must be True or False
    """
    for name, value in values.items():
        if not isinstance(value, bool):
            raise UserError(f"{name}={value!r} must be True or False")


def check_counts(**values: Any) -> None:
    """Raises UserError for a value that is no whole number of 1 or more.

    >>> check_counts(top=0)
    Traceback (most recent call last):
    tfrecords.base.errors.UserError: top=0 must be a whole number of 1 or more
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
            raise UserError(f"{name}={value!r} must be a whole number of 1 or more")


def check_libraries(asker: str, extra: str, **packages: str) -> None:
    """Raises UserError if a library that `asker` needs is missing; `packages` maps module names to PyPI names."""
    if missing := [package for module, package in packages.items() if importlib.util.find_spec(module) is None]:
        raise UserError(f"{asker} needs {' and '.join(missing)}: pip install '.[{extra}]'")


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns "; did you mean 'seed'?" with the most similar name, or ""."""
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def first_line(error: Exception) -> str:
    """First line of a library's error message, or the error's class name."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)

"""The exception for wrong input that the user can correct."""

import difflib
from collections.abc import Iterable
from typing import Any


class UserError(ValueError):
    """Wrong input by the user. The message is one line that names the value and the remedy."""


def check_truths(**values: Any) -> None:
    """Raises UserError for a value that is neither True nor False.

    >>> check_truths(normalize="no")
    Traceback (most recent call last):
    tfrecords.base.errors.UserError: normalize='no' must be True or False
    """
    for name, value in values.items():
        if not isinstance(value, bool):
            raise UserError(f"{name}={value!r} must be True or False")


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns "; did you mean 'seed'?" with the most similar name, or ""."""
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def first_line(error: Exception) -> str:
    """First line of a library's error message, or the error's class name."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)

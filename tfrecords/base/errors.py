"""The one exception a script turns into one line: something the user gave us is wrong, and can be mended."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input. The message is one line that names the value and says what would be right."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns the end of a message that asks for the nearest of some names; "" where none is near."""
    close = difflib.get_close_matches(str(name), list(names), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def first_line(error: Exception) -> str:
    """Gives the first line of what a library says went wrong; the error's name where it says nothing."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)

"""Finds the files of comma-separated globs."""

import glob
import os
from collections.abc import Iterable

from tfrecords.base.errors import UserError


def patterns_of(patterns: str | os.PathLike | Iterable[str | os.PathLike]) -> list[str]:
    """Splits comma-separated globs; the name of a file or folder that is there stays whole."""
    if not isinstance(patterns, (str, os.PathLike)):
        return [str(pattern) for pattern in patterns]
    whole = str(patterns)
    parts = [whole] if os.path.lexists(os.path.expanduser(whole)) else whole.split(",")
    return [part.strip() for part in parts if part.strip()]


def matches(pattern: str) -> list[str]:
    """Returns the files and folders of a glob; what is there by that very name is no glob.

    Raises UserError for a name that is not UTF-8.
    """
    pattern = os.path.expanduser(pattern)
    folder = pattern
    while folder and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    found = glob.glob(glob.escape(folder) + pattern[len(folder) :], recursive=True)
    for name in found:
        if not name.isascii() and name != name.encode(errors="replace").decode():
            raise UserError(f"the name of the file {name!a} is not UTF-8; rename it")
    return found

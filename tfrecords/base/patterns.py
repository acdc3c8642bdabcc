"""Finds the files of comma-separated globs."""

import glob
import os
from collections.abc import Iterable

from tfrecords.base.errors import UserError


def patterns_of(patterns: str | os.PathLike | Iterable[str | os.PathLike]) -> list[str]:
    """Splits comma-separated globs; the name of a file or folder that is there stays whole.

    Raises UserError for the name of a file that is a list of other files as well.
    """
    if not isinstance(patterns, (str, os.PathLike)):
        return [str(pattern) for pattern in patterns]
    parts, found = [part.strip() for part in str(patterns).split(",")], []
    while parts:
        names = ((end, ",".join(parts[:end])) for end in range(len(parts), 1, -1))
        end, name = next(((end, name) for end, name in names if _is_there(name)), (1, parts[0]))
        if end > 1 and all(matches(part) for part in parts[:end]):
            raise UserError(f"'{name}' is a file, and a list of files that are there too; rename one of them")
        found.append(name)
        parts = parts[end:]
    return list(filter(None, found))


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


def _is_there(name: str) -> bool:
    return os.path.lexists(os.path.expanduser(name))

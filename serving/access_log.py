"""A log with a line of JSON per request, without texts."""

import contextlib
import datetime
import json
import sys
import threading
from typing import Any

from tfrecords.base.errors import UserError


class AccessLog:
    """Appends lines to the file `path` or, for "-", standard output; "" disables it. Thread-safe.

    Raises UserError if the file cannot be opened.
    """

    def __init__(self, path: str):
        self._lock = threading.Lock()
        self._file = None
        if path == "-":
            self._file = sys.stdout
        elif path:
            try:
                self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115  open for the life of the server
            except OSError as error:
                raise UserError(f"Cannot open --access_log={path}: {error.strerror}") from error

    def write(self, **entry: Any) -> None:
        if self._file is None:
            return
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time} | entry) + "\n"
        # A full disk must not fail requests.
        with self._lock, contextlib.suppress(OSError):
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        if self._file not in (None, sys.stdout):
            with contextlib.suppress(OSError):
                self._file.close()

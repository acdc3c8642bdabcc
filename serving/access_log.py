"""A log with a line of JSON per request, without texts."""

import contextlib
import datetime
import json
import logging
import sys
import threading
from typing import Any, TextIO

from tfrecords.base.errors import UserError

_LOG = logging.getLogger(__name__)


class AccessLog:
    """Appends lines to the file `path` or, for "-", standard output; "" disables it. Thread-safe.

    Raises UserError if the file cannot be opened.
    """

    def __init__(self, path: str):
        self._lock = threading.Lock()
        self._path, self._is_moved = path, False
        self._file = sys.stdout if path == "-" else self._open() if path else None

    def _open(self) -> TextIO:
        try:
            return open(self._path, "a", encoding="utf-8")
        except OSError as error:
            raise UserError(f"Cannot open --access_log={self._path}: {error.strerror}") from error

    def reopen(self) -> None:
        """Opens the file anew before the next line, since another program moved it. Safe in a signal handler."""
        self._is_moved = self._path not in ("", "-")

    def write(self, **entry: Any) -> None:
        if self._file is None:
            return
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time} | entry) + "\n"
        # A full disk must not fail requests.
        with self._lock, contextlib.suppress(OSError):
            if self._is_moved:
                self._is_moved = False
                self._change()
            self._file.write(line)
            self._file.flush()

    def _change(self) -> None:
        before = self._file
        try:
            self._file = self._open()
            before.close()
        except UserError as error:
            _LOG.error("%s; lines go to the file of before", error)

    def close(self) -> None:
        if self._file not in (None, sys.stdout):
            with contextlib.suppress(OSError):
                self._file.close()

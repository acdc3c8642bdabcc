"""A log with a line of JSON per request, without texts."""

import contextlib
import datetime
import json
import logging
import sys
from logging.handlers import WatchedFileHandler
from typing import Any

from tfrecords.base.errors import UserError


class AccessLog:
    """Appends lines to the file `path` or, for "-", standard output; "" disables it. Thread-safe.

    A file that another program moved is opened anew before the next line. Raises UserError if it cannot be opened.
    """

    def __init__(self, path: str):
        try:
            self._handler = WatchedFileHandler(path, encoding="utf-8") if path not in ("", "-") else None
        except OSError as error:
            raise UserError(f"Cannot open --access_log={path}: {error.strerror}") from error
        if path == "-":
            self._handler = logging.StreamHandler(sys.stdout)
        if self._handler is not None:
            # A full disk must not fail requests.
            self._handler.handleError = lambda record: None

    def write(self, **entry: Any) -> None:
        if self._handler is None:
            return
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        with contextlib.suppress(OSError):
            self._handler.handle(logging.makeLogRecord({"msg": json.dumps({"time": time} | entry)}))

    def close(self) -> None:
        if self._handler is not None:
            with contextlib.suppress(OSError):
                self._handler.close()

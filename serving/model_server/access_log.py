"""One JSON line per request, for whoever asks for it."""

import contextlib
import datetime
import json
import sys
import threading

from tensorflow_serving.apis import model_pb2

from serving.model_server.status import invalid_argument


class AccessLog:
    """Appends to a file (or standard output); does nothing without a path. Thread-safe."""

    def __init__(self, path: str):
        """path: "" = off, "-" = standard output. Raises StatusError when the file cannot be opened."""
        self._lock = threading.Lock()
        self._file = None
        if path == "-":
            self._file = sys.stdout
        elif path:
            try:
                self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115  open for the life of the server
            except OSError as error:
                raise invalid_argument(f"Cannot open --access_log={path}: {error.strerror}") from error

    def write(self, entrypoint: str, call: str, spec: model_pb2.ModelSpec, status: str, seconds: float) -> None:
        """call: the RPC's name, or verb and path."""
        if self._file is None:
            return
        entry = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "entrypoint": entrypoint,
            "call": call,
            "model": spec.name,
            "version": spec.version.value if spec.HasField("version") else None,
            "label": spec.version_label or None,
            "signature": spec.signature_name or None,
            "status": status,
            "milliseconds": round(seconds * 1000, 3),
        }
        line = json.dumps(entry) + "\n"
        # A full disk must not fail requests.
        with self._lock, contextlib.suppress(OSError):
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        if self._file not in (None, sys.stdout):
            with contextlib.suppress(OSError):
                self._file.close()

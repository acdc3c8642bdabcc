"""A model server in a process of its own, as long as a block."""

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from serving.client import Client
from tfrecords.base.errors import UserError


def free_port() -> int:
    """Returns a port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def model_server(base: Path, seconds: float = 120.0) -> Iterator[str]:
    """Serves the versions in `base` as the model `m` and yields HOST:PORT.

    Raises:
        UserError: the server ended, or does not answer after so many seconds.
    """
    target = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "serving.model_server", f"--port={target.partition(':')[2]}"]
    command += ["--model_name=m", f"--model_base_path={base.absolute()}"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            end = time.monotonic() + seconds
            while not _answers(target):
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise UserError(f"the server of '{base}' does not answer: {log.read()[-500:]}")
                time.sleep(0.1)
            yield target
        finally:
            process.terminate()
            process.wait()


def _answers(target: str) -> bool:
    with contextlib.suppress(UserError), Client(target, "m", timeout_s=5) as client:
        return any(version.state == "AVAILABLE" for version in client.status())
    return False

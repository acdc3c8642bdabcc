"""The servers' commands in processes of their own, and requests over HTTP."""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPConnection

from serving.client import Client
from tests.servers import free_port
from tfrecords.base.errors import UserError


@contextlib.contextmanager
def command(*words: str, **options) -> Iterator[subprocess.Popen]:
    """Runs `python -m WORDS` as long as the block."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([sys.executable, "-m", *words], stdout=log, stderr=log, **options)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def model_server(base: str, *flags: str) -> Iterator[str]:
    """Serves the model `m`; gives its HOST:PORT."""
    port = free_port()
    words = ["serving.model_server", f"--port={port}", "--model_name=m", f"--model_base_path={base}"]
    with command(*words, "--grpc_max_threads=256", *flags) as process, Client(f"127.0.0.1:{port}", "m") as client:
        wait_for(client.status, process)
        yield f"127.0.0.1:{port}"


@contextlib.contextmanager
def gateway(target: str, model: str, *flags: str) -> Iterator[tuple[int, int]]:
    """Gives its port and its process."""
    port = free_port()
    with command("serving.gateway", f"--target={target}", f"--model={model}", f"--port={port}", *flags) as process:
        wait_for(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10).close(), process)
        yield port, process.pid


def wait_for(call: Callable[[], object], process: subprocess.Popen, seconds: float = 120.0) -> None:
    """Calls until there is no error; raises it once the process has ended, or after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        try:
            call()
            return
        except (UserError, OSError):
            if process.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.1)


def post(http: HTTPConnection, path: str, body: bytes) -> bytes:
    """The answer to a body; RuntimeError for an error."""
    http.request("POST", path, body)
    answer = http.getresponse()
    read = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {read[:200]!r}")
    return read


def info(port: int) -> dict:
    """What the gateway tells of its first model."""
    return json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/info"))["models"][0]

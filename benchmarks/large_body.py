"""What one large REST body costs the small requests beside it.

python -m benchmarks.large_body [--megabytes=100] [--nested]
"""

import contextlib
import http.client
import json
import platform
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import tensorflow as tf
from absl import flags
from scripts.server import free_port

from benchmarks import servers
from benchmarks.machine import machine_line
from benchmarks.model_server import Server, trivial_case
from tfrecords.base.script import run_main

flags.DEFINE_multi_integer("megabytes", [10, 100], "Sizes of the large bodies.")
flags.DEFINE_boolean("nested", False, "Each number in a list of its own, the most work for its size.")
FLAGS = flags.FLAGS
_PAUSE_SECONDS = 0.005
_SMALL = json.dumps({"inputs": [2.0]}).encode()


def post(connection: http.client.HTTPConnection, body: bytes) -> tuple[float, bytes]:
    """Milliseconds until the whole answer is there, and the answer. Raises RuntimeError for an error."""
    begin = time.perf_counter()
    answer = servers.post(connection, "/v1/models/default:predict", body)
    return (time.perf_counter() - begin) * 1e3, answer


def large_body(megabytes: int, nested: bool) -> bytes:
    number = b"[0.6369616873214543]" if nested else b"0.6369616873214543"
    return b'{"instances": [' + b", ".join([number] * (megabytes * 10**6 // (len(number) + 2))) + b"]}"


def beside(port: int, body: bytes) -> tuple[float, int, list[float]]:
    """Milliseconds and bytes of the large answer, and the milliseconds of each small request sent meanwhile."""
    small: list[float] = []
    done = threading.Event()

    def steady_load() -> None:
        with connected(port) as connection:
            while not done.wait(_PAUSE_SECONDS):
                small.append(post(connection, _SMALL)[0])

    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(steady_load)
        try:
            time.sleep(0.5)
            small.clear()
            with connected(port) as connection:
                took, answer = post(connection, body)
        finally:
            done.set()
        load.result()
    return took, len(answer), small


def connected(port: int) -> contextlib.closing:
    return contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=600))


def main() -> None:
    print(f"{machine_line()}, Python {platform.python_version()}, TensorFlow {tf.__version__}")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        case = trivial_case(Path(folder))
        with Server(case, f"--rest_api_port={port}", "--rest_api_timeout_in_ms=600000"):
            with connected(port) as connection:
                alone = [post(connection, _SMALL)[0] for _ in range(300)]
            print(f"kept-alive connection, nothing else: p50 {np.median(alone):.2f} ms")
            for megabytes in FLAGS.megabytes:
                took, size, small = beside(port, large_body(megabytes, FLAGS.nested))
                p50, p99 = np.percentile(small, [50, 99])
                print(f"{megabytes} MB: answer of {size / 1e6:.0f} MB in {took / 1e3:.2f} s; {len(small)} small ones "
                      f"beside it: p50 {p50:.1f}, p99 {p99:.1f}, max {max(small):.1f} ms")  # fmt: skip


if __name__ == "__main__":
    run_main(main)

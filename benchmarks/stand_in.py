"""A model server that does no work, in a process of its own, and the median of calls to it."""

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

from serving.benchmark.stand_in import StandIn


@contextlib.contextmanager
def stand_in_process(make: Callable[[], StandIn] = StandIn) -> Iterator[str]:
    """Gives its HOST:PORT; `make`, a function of a module, makes the server in that process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, make), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


def _serve(pipe, make: Callable[[], StandIn]) -> None:
    with make() as server:
        pipe.send(server.target)
        threading.Event().wait()


def median_ms(call: Callable[[], object], calls: int) -> float:
    """The median of so many calls, in milliseconds."""
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return float(np.median(times)) * 1000

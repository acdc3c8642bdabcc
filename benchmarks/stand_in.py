"""A model server that does no work, in a process of its own."""

import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Iterator

from tests.stand_in import StandIn


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

"""Load from several processes at once: Python sends about 5,000 requests a second from one."""

import math
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait

from serving.benchmark.load import Driver, Samples, Share, join
from serving.client.channel import Connection
from tfrecords.base.errors import UserError
from tfrecords.base.processes import end_with_parent, interrupts_deferred, interrupts_held_back

# Time for every process to have read its share before the common start.
_HEAD_START_S = 0.05
_TICK_S = 0.2


class Workers:
    """`processes` generator processes with open connections; `with Workers(...) as workers: workers.run(share)`."""

    def __init__(self, connection: Connection, processes: int = 1, connections: int = 1):
        # Spawned, not forked: a forked copy of gRPC's threads and locks does not work.
        context = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        with interrupts_deferred(), interrupts_held_back():
            for _ in range(processes):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs, connection, connections), daemon=True)
                process.start()
                theirs.close()
                self._pipes.append(ours)
                self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.terminate()
            process.join()

    def run(self, share: Share, progress: Callable[[float], None] = lambda seconds: None) -> Samples:
        """Sends `share`, whose `start` is set here, from all processes; `progress` hears of every span of seconds."""
        start = time.perf_counter() + _HEAD_START_S
        try:
            for pipe, part in zip(self._pipes, split(replace(share, start=start), len(self._pipes)), strict=True):
                pipe.send(part)
            return join(self._collect(progress))
        except (EOFError, ConnectionError):
            raise UserError("a load generator process died; was it killed, or is memory short?") from None

    def _collect(self, progress: Callable[[float], None]) -> list[Samples]:
        waiting, parts, told = list(self._pipes), [], time.perf_counter()
        while waiting:
            for pipe in wait(waiting, timeout=_TICK_S):
                parts.append(pipe.recv())
                waiting.remove(pipe)
            now = time.perf_counter()
            progress(now - told)
            told = now
        return parts


def split(share: Share, count: int) -> list[Share]:
    """Arrivals dealt out in turn (each process sees 1/count of the rate), or clients as evenly as they go."""
    if share.due is not None:
        return [replace(share, due=share.due[i::count], first_item=i, item_step=count) for i in range(count)]
    clients = [share.clients // count + (i < share.clients % count) for i in range(count)]
    least = math.ceil(share.least_requests / count)
    return [
        replace(share, clients=n, least_requests=least, first_item=sum(clients[:i]), item_step=share.clients)
        for i, n in enumerate(clients)
    ]


def _serve(pipe: Pipe, connection: Connection, connections: int) -> None:
    end_with_parent()
    driver = Driver(connection, connections)
    try:
        pipe.send("ready")
        while True:
            pipe.send(driver.run(pipe.recv()))
    except (EOFError, ConnectionError):
        driver.close()

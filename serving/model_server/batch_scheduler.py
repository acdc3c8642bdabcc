"""Queues of batches and the threads that run them, as in TensorFlow's SharedBatchScheduler."""

import collections
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from grpc import StatusCode

from serving.model_server.status import StatusError


@dataclass
class WaitingRows:
    """Rows of one request that wait for a batch; `done` receives the outputs or the error."""

    inputs: Any
    size: int
    deadline: float | None = None
    enqueued: float = field(default_factory=time.monotonic)
    done: Future = field(default_factory=Future)


@dataclass
class WaitingBatch:
    """Rows that run together."""

    tasks: list[WaitingRows]
    opened: float

    @property
    def size(self) -> int:
        return sum(task.size for task in self.tasks)


class QueueOptions(Protocol):
    """Sizes in rows; `timeout`: seconds that a batch waits after its first rows."""

    max_execution_batch_size: int
    max_enqueued_batches: int
    timeout: float


class Queue:
    """The waiting batches of one kind of request; only the last takes more rows."""

    def __init__(
        self, scheduler: "BatchScheduler", process: Callable[[list[WaitingRows]], None], options: QueueOptions
    ):
        self._scheduler, self._options, self.process = scheduler, options, process
        self._batches: collections.deque[WaitingBatch] = collections.deque()
        self.users = 0
        with scheduler.changed:
            scheduler.queues.append(self)

    def close(self) -> None:
        with self._scheduler.changed:
            self._scheduler.queues.remove(self)

    def submit(self, tasks: list[WaitingRows]) -> None:
        """Enqueues all rows or none; raises StatusError UNAVAILABLE if the queue is full."""
        with self._scheduler.changed:
            # The first joins the open batch, each other is a new one.
            groups: list[list[WaitingRows]] = [[]]
            room = self._room() if self._batches else -1
            for task in tasks:
                if task.size > room:
                    groups.append([])
                    room = self._options.max_execution_batch_size
                groups[-1].append(task)
                room -= task.size
            limit = self._options.max_enqueued_batches
            if len(groups) - 1 > limit - len(self._batches):
                raise StatusError(
                    StatusCode.UNAVAILABLE,
                    "The batch scheduling queue to which this task was submitted is full; currently "
                    f"{len(self._batches)} batches enqueued and max_enqueued_batches is {limit}",
                )
            if groups[0]:
                self._batches[-1].tasks += groups[0]
            self._batches += [WaitingBatch(group, time.monotonic()) for group in groups[1:]]
            # One thread for the batch that was open, one for each new one.
            self._scheduler.changed.notify(len(groups))

    def free_rows(self) -> int:
        with self._scheduler.changed:
            return self._room()

    def _room(self) -> int:
        return self._options.max_execution_batch_size - (self._batches[-1].size if self._batches else 0)

    def ready_at(self) -> float | None:
        """Returns when the first batch may run (time.monotonic), or None. Hold the scheduler's lock."""
        if not self._batches:
            return None
        if len(self._batches) > 1 or self._room() <= 0:
            return 0.0
        return self._batches[0].opened + self._options.timeout

    def take(self) -> WaitingBatch:
        return self._batches.popleft()


class BatchScheduler:
    """Threads that serve the queues of all models in turn."""

    def __init__(self, threads: int):
        self.changed = threading.Condition()
        self.queues: list[Queue] = []
        self._turn = 0
        self._stopped = False
        self._threads = [threading.Thread(target=self._work, name=f"batch-{i}", daemon=True) for i in range(threads)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        with self.changed:
            self._stopped = True
            self.changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while True:
            with self.changed:
                queue = self._wait_for_ready_queue()
                if queue is None:
                    return
                batch = queue.take()
            queue.process(batch.tasks)
            # The batch holds requests and answers; an idle thread must not keep them alive.
            del batch, queue

    def _wait_for_ready_queue(self) -> Queue | None:
        while not self._stopped:
            now = time.monotonic()
            soonest = None
            for offset in range(len(self.queues)):
                index = (self._turn + offset) % len(self.queues)
                ready = self.queues[index].ready_at()
                if ready is not None and ready <= now:
                    self._turn = index + 1
                    return self.queues[index]
                if ready is not None:
                    soonest = ready if soonest is None else min(soonest, ready)
            self.changed.wait(None if soonest is None else soonest - now)
        return None

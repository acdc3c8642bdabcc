"""Queues of batches and the threads that run them, as in TensorFlow's SharedBatchScheduler."""

import collections
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

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


class WaitingBatch:
    """Rows that run together."""

    def __init__(self):
        self.tasks: list[WaitingRows] = []
        self.size = 0
        self.opened = time.monotonic()

    def add(self, task: WaitingRows) -> None:
        self.tasks.append(task)
        self.size += task.size


class Queue:
    """The waiting batches of one kind of request; only the last takes more rows."""

    def __init__(
        self,
        scheduler: "BatchScheduler",
        process: Callable[[list[WaitingRows]], None],
        max_batch_size: int,
        timeout: float,
        max_enqueued_batches: int,
    ):
        """`timeout`: seconds that a batch waits after its first rows."""
        self._scheduler = scheduler
        self._max_batch_size = max_batch_size
        self._timeout = timeout
        self._max_enqueued_batches = max_enqueued_batches
        self._batches: collections.deque[WaitingBatch] = collections.deque()
        self.process = process
        self.users = 0

    def submit(self, tasks: list[WaitingRows]) -> None:
        """Enqueues all rows or none; raises StatusError UNAVAILABLE if the queue is full."""
        with self._scheduler.changed:
            opened = self._new_batches(tasks)
            if opened > self._max_enqueued_batches - len(self._batches):
                raise StatusError(
                    StatusCode.UNAVAILABLE,
                    "The batch scheduling queue to which this task was submitted is full; currently "
                    f"{len(self._batches)} batches enqueued and max_enqueued_batches is {self._max_enqueued_batches}",
                )
            for task in tasks:
                if not self._fits(task):
                    self._batches.append(WaitingBatch())
                self._batches[-1].add(task)
            # One thread for the batch that was open, one for each new one.
            self._scheduler.changed.notify(1 + opened)

    def free_rows(self) -> int:
        with self._scheduler.changed:
            return self._max_batch_size - (self._batches[-1].size if self._batches else 0)

    def ready_at(self) -> float | None:
        """Returns when the first batch may run (time.monotonic), or None. Hold the scheduler's lock."""
        if not self._batches:
            return None
        if len(self._batches) > 1 or self._batches[0].size >= self._max_batch_size:
            return 0.0
        return self._batches[0].opened + self._timeout

    def take(self) -> WaitingBatch:
        return self._batches.popleft()

    def _fits(self, task: WaitingRows) -> bool:
        return bool(self._batches) and self._batches[-1].size + task.size <= self._max_batch_size

    def _new_batches(self, tasks: list[WaitingRows]) -> int:
        room = self._max_batch_size - self._batches[-1].size if self._batches else -1
        count = 0
        for task in tasks:
            if task.size > room:
                count += 1
                room = self._max_batch_size
            room -= task.size
        return count


class BatchScheduler:
    """Threads that serve the queues of all models in turn."""

    def __init__(self, threads: int):
        self.changed = threading.Condition()
        self._queues: list[Queue] = []
        self._turn = 0
        self._stopped = False
        self._threads = [threading.Thread(target=self._work, name=f"batch-{i}", daemon=True) for i in range(threads)]
        for thread in self._threads:
            thread.start()

    def add(self, queue: Queue) -> None:
        with self.changed:
            self._queues.append(queue)

    def remove(self, queue: Queue) -> None:
        with self.changed:
            self._queues.remove(queue)

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
            for offset in range(len(self._queues)):
                index = (self._turn + offset) % len(self._queues)
                ready = self._queues[index].ready_at()
                if ready is not None and ready <= now:
                    self._turn = index + 1
                    return self._queues[index]
                if ready is not None:
                    soonest = ready if soonest is None else min(soonest, ready)
            self.changed.wait(None if soonest is None else soonest - now)
        return None

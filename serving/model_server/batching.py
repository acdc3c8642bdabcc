"""Joins the tensors of requests and splits the outputs, like TF Serving's batching_session.cc."""

import collections
import concurrent.futures
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from grpc import StatusCode

from serving.model_server import telemetry
from serving.model_server.configuration import read_text_proto
from serving.model_server.flags import ServerOptions
from serving.model_server.status import StatusError, as_status_error, invalid_argument
from serving.model_server.versions.manager import Model
from serving.wire.protos import BatchingParameters
from tfrecords.base.errors import refuse
from tfrecords.base.machine.cpu import cores


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


class Queue:
    """The waiting batches of one kind of request; only the last takes more rows."""

    def __init__(
        self, scheduler: "BatchScheduler", process: Callable[[list[WaitingRows]], None], options: "BatchingOptions"
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


Feeds = Mapping[str, np.ndarray]
_MAX_PADDED_RANK = 6
# All threads start with the server.
_MAX_THREADS = 4096
_PER_MODEL_FILE = "batching_params.pbtxt"


class BatchingOptions:
    """The fields of BatchingParameters; times in seconds, sizes in rows."""

    def __init__(self, proto: BatchingParameters):
        def value(field: str, default):
            return getattr(proto, field).value if proto.HasField(field) else default

        self.max_batch_size = value("max_batch_size", 1000)
        self.timeout = value("batch_timeout_micros", 0) / 1e6
        self.max_enqueued_batches = value("max_enqueued_batches", 10)
        self.threads = value("num_batch_threads", cores())
        self.pool_name = value("thread_pool_name", "batch_threads")
        self.allowed_batch_sizes = tuple(proto.allowed_batch_sizes)
        self.pad_variable_length_inputs = proto.pad_variable_length_inputs
        self.split_large = value("enable_large_batch_splitting", False)
        largest = value("max_execution_batch_size", self.max_batch_size)
        self.max_execution_batch_size = largest if self.split_large else self.max_batch_size

    def check(self) -> None:
        sizes, most = self.allowed_batch_sizes, self.max_batch_size
        last = sizes[-1] if sizes else most
        positive = {name: getattr(self, name) for name in ("max_batch_size", "max_execution_batch_size",
                                                           "max_enqueued_batches")}  # fmt: skip
        refuse({f"{name} must be positive; was {value}": value < 1 for name, value in positive.items()} | {
            f"batch_timeout_micros must be non-negative; was {round(self.timeout * 1e6)}": self.timeout < 0,
            "When enable_large_batch_splitting is true, max_batch_size must be greater than or equal to "
            f"max_execution_batch_size; were {most} and {self.max_execution_batch_size}":
                self.max_execution_batch_size > most,
            # Whatever max_execution_batch_size says: bundle_factory_util.cc compares with max_batch_size.
            f"Last entry in allowed_batch_sizes must match max_batch_size; last entry was {last}; expected {most}":
                last != most,
        }, invalid_argument)  # fmt: skip


class BatchingRunner:
    """Runs requests with the same inputs and outputs together on `wrapped`."""

    def __init__(
        self,
        wrapped: Model,
        scheduler: BatchScheduler,
        options: BatchingOptions,
    ):
        options.check()
        self.signatures, self.close = wrapped.signatures, wrapped.close
        self._wrapped = wrapped
        self._scheduler = scheduler
        self._options = options
        self._fixed_axes = {
            info.name: [axis for axis, dim in enumerate(info.tensor_shape.dim) if axis and dim.size >= 0]
            for signature in wrapped.signatures.values()
            for info in signature.inputs.values()
        }
        self._queues: dict[Hashable, Queue] = {}
        self._lock = threading.Lock()

    def run(self, feeds: Feeds, fetches: Sequence[str], timeout: float | None = None) -> list[np.ndarray]:
        size = self._checked_size(feeds)
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._queue(feeds, list(fetches)) as queue:
            tasks = [WaitingRows(part, rows, deadline) for part, rows in self._parts(feeds, size, queue)]
            queue.submit(tasks)
            concurrent.futures.wait([task.done for task in tasks])
        results = [task.done.result() for task in tasks]
        return results[0] if len(results) == 1 else [_joined(parts) for parts in zip(*results, strict=True)]

    @contextlib.contextmanager
    def on_own_thread(self) -> Iterator[None]:
        """Runs batches on a thread of their own within the block, so that others need not wait for them."""
        shared, self._scheduler = self._scheduler, BatchScheduler(1)
        try:
            yield
        finally:
            self._scheduler.stop()
            self._scheduler = shared

    def _checked_size(self, feeds: Feeds) -> int:
        refuse({
            "Batching Run() must have at least one input tensor": not feeds,
            "Batching Run() input tensors must have at least one dimension": not all(map(np.ndim, feeds.values())),
        }, invalid_argument)  # fmt: skip
        sizes = {len(value) for value in feeds.values()}
        size, most = max(sizes), self._options.max_batch_size
        for value in feeds.values():
            telemetry.INPUT_BATCH_SIZE.observe(len(value))
        refuse({
            "Batching Run() input tensors must have equal 0th-dimension size": len(sizes) > 1,
            f"Task size {size} is larger than maximum input batch size {most}": size > most,
        }, invalid_argument)  # fmt: skip
        return size

    def _parts(self, feeds: Feeds, size: int, queue: Queue) -> list[tuple[Feeds, int]]:
        free, limit = queue.free_rows(), self._options.max_execution_batch_size
        if not self._options.split_large or size <= free:
            return [(feeds, size)]
        cuts = [0, *range(free or limit, size, limit), size]
        return [
            ({name: value[begin:end] for name, value in feeds.items()}, end - begin)
            for begin, end in itertools.pairwise(cuts)
        ]

    # A queue goes with its last user, so that clients cannot pile up queues.
    @contextlib.contextmanager
    def _queue(self, feeds: Feeds, fetches: list[str]) -> Iterator[Queue]:
        key = (tuple(sorted(self._kind(name, value) for name, value in feeds.items())), tuple(fetches))
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = Queue(
                    self._scheduler, lambda tasks: self._process(tasks, fetches), self._options
                )
            queue.users += 1
        try:
            yield queue
        finally:
            with self._lock:
                queue.users -= 1
                if not queue.users:
                    self._queues.pop(key).close()

    def _kind(self, name: str, value: np.ndarray) -> tuple:
        # Returns what requests of a batch must share, so that one's bad input cannot fail the others.
        fixed = tuple(value.shape[axis] for axis in self._fixed_axes.get(name, ()) if axis < value.ndim)
        return name, value.dtype, value.ndim, fixed, value.size > 0

    def _process(self, tasks: list[WaitingRows], fetches: list[str]) -> None:
        try:
            outputs = self._run_batch(tasks, fetches)
        except BaseException as failure:
            error = as_status_error(failure)
            for task in tasks:
                # One exception object per client: raising a shared one would tangle their tracebacks.
                task.done.set_exception(StatusError(error.code, error.message))
            return
        for task, values in zip(tasks, outputs, strict=True):
            task.done.set_result(values)

    def _run_batch(self, tasks: list[WaitingRows], fetches: list[str]) -> list[list[np.ndarray]]:
        now = time.monotonic()
        for task in tasks:
            telemetry.QUEUING_LATENCY.labels(self._options.pool_name).observe((now - task.enqueued) * 1e6)
        deadlines = [task.deadline for task in tasks]
        if all(deadline is not None and deadline <= now for deadline in deadlines):
            raise StatusError(StatusCode.RESOURCE_EXHAUSTED, "Run() timeout exceeded while waiting in batching queue")
        timeout = None if None in deadlines else max(deadlines) - now
        size = sum(task.size for task in tasks)
        padded = next((allowed for allowed in self._options.allowed_batch_sizes if allowed >= size), size)
        telemetry.PADDING_SIZE.labels(str(padded)).observe(padded - size)
        telemetry.PROCESSED_BATCH_SIZE.observe(padded)
        merged = {name: self._merged(name, [task.inputs[name] for task in tasks], padded - size)
                  for name in sorted(tasks[0].inputs)}  # fmt: skip
        telemetry.WRAPPED_RUN_COUNT.inc()
        outputs = self._wrapped.run(merged, fetches, timeout)
        return _split(outputs, [task.size for task in tasks], padded)

    def _merged(self, name: str, values: list[np.ndarray], padding: int) -> np.ndarray:
        if self._options.pad_variable_length_inputs:
            values = _padded_alike(values)
        elif len({value.shape[1:] for value in values}) > 1:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION,
                f"Tensors with name '{name}' from different tasks have different shapes and padding is turned off. "
                "Set pad_variable_length_inputs to true, or ensure that all tensors with the same name have equal "
                "dimensions starting with the first dim.",
            )
        if padding and len(values[-1]):
            values = [*values, np.repeat(values[-1][:1], padding, axis=0)]
        return values[0] if len(values) == 1 else np.concatenate(values)


def _padded_alike(values: list[np.ndarray]) -> list[np.ndarray]:
    if values[0].ndim > _MAX_PADDED_RANK:
        raise invalid_argument("Only tensors with rank from 1 to 6 can be padded.")
    largest = np.max([value.shape[1:] for value in values], axis=0).astype(int).tolist()
    result = []
    for value in values:
        if list(value.shape[1:]) == largest:
            result.append(value)
            continue
        if not value.size:
            raise invalid_argument("Got empty tensor in batch of non-empty tensors.")
        padded = np.full((len(value), *largest), value.reshape(-1)[:1], value.dtype)
        padded[tuple(slice(size) for size in value.shape)] = value
        result.append(padded)
    return result


def _split(outputs: list[np.ndarray], sizes: list[int], padded: int) -> list[list[np.ndarray]]:
    bounds = np.cumsum(sizes)
    for output in outputs:
        if np.ndim(output) == 0:
            raise StatusError(StatusCode.FAILED_PRECONDITION, "Batched output tensor has 0 dimensions")
        if len(output) != padded:
            raise StatusError(
                StatusCode.FAILED_PRECONDITION,
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the "
                "input tensors",
            )
    return [[output[end - size : end] for output in outputs] for size, end in zip(sizes, bounds.tolist(), strict=True)]


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    if len(shapes := {part.shape[1:] for part in parts}) > 1:
        unlike = " and ".join(map(str, sorted(shapes)))
        raise invalid_argument(
            f"The request was split, and an output of its parts has rows of shapes {unlike}, which cannot be joined: "
            "set enable_large_batch_splitting to false, or send fewer rows in a request"
        )
    return np.concatenate(parts)


class Batching:
    """The server's batching, set by its flags."""

    def __init__(self, options: ServerOptions):
        self._per_model = options.enable_per_model_batching_parameters
        self._common = None
        self._scheduler = None
        if not options.enable_batching:
            return
        proto = BatchingParameters()
        if not options.batching_parameters_file:
            # The real server's name; a pool that a file describes without one is called otherwise there, too.
            proto.thread_pool_name.value = "model_server_batch_threads"
        else:
            read_text_proto(options.batching_parameters_file, proto)
        self._common = BatchingOptions(proto)
        if not 1 <= self._common.threads <= _MAX_THREADS:
            raise invalid_argument(f"num_batch_threads must be 1 to {_MAX_THREADS}; was {self._common.threads}")
        self._scheduler = BatchScheduler(self._common.threads)

    def wrapped(self, model: Model, path: str) -> Model:
        """Returns `model`, with batching if the flags and the version's folder enable it."""
        if self._scheduler is None:
            return model
        if not self._per_model:
            return BatchingRunner(model, self._scheduler, self._common)
        file = Path(path) / _PER_MODEL_FILE
        if not file.is_file():
            return model
        parameters = BatchingOptions(read_text_proto(str(file), BatchingParameters()))
        return BatchingRunner(model, self._scheduler, parameters)

    def close(self) -> None:
        if self._scheduler is not None:
            self._scheduler.stop()

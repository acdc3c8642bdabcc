"""Where chunks are built: in this process, in several on this machine, or on a Ray cluster. All give the same parts."""

import collections
import itertools
import multiprocessing
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent import futures
from typing import Any

from tfrecords.corpus import Chunk
from tfrecords.errors import UserError
from tfrecords.processes import end_with_parent, interrupts_deferred, interrupts_held_back
from tfrecords.writer import ChunkBuilder

_builder: ChunkBuilder


def run_local(
    builder: ChunkBuilder, chunks: Iterable[tuple[int, Chunk]], workers: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (chunk number, report) as they are done; at most one chunk more than there are workers is in memory."""
    chunks = iter(chunks)
    head = collections.deque(itertools.islice(chunks, 2 if workers > 1 else 0))
    all_chunks = itertools.chain((head.popleft() for _ in range(len(head))), chunks)
    if len(head) == 2:
        yield from _run_processes(builder, all_chunks, workers)
        return
    # A process for a single chunk would cost its start and gain nothing.
    for number, chunk in all_chunks:
        report = builder.build(number, chunk)
        # Let go of before the next is read.
        del chunk
        yield number, report


def _run_processes(
    builder: ChunkBuilder, chunks: Iterable[tuple[int, Chunk]], workers: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    # Spawned, not forked: the caller may have TensorFlow's threads running.
    context = multiprocessing.get_context("spawn")
    pool_of = futures.ProcessPoolExecutor(workers, context, _start_worker, (builder,))
    with interrupts_deferred() as interrupted, pool_of as pool:
        running: dict[futures.Future, int] = {}
        try:
            for number, chunk in chunks:
                with interrupts_held_back():
                    running[pool.submit(_build, number, chunk)] = number
                del chunk
                if len(running) > workers:
                    yield from _finished(running, futures.FIRST_COMPLETED, interrupted)
            yield from _finished(running, futures.ALL_COMPLETED, interrupted)
        except futures.process.BrokenProcessPool as error:
            raise ChildProcessError(
                "a worker process died, perhaps for want of memory (try fewer --workers)"
            ) from error
        finally:
            for future in running:
                future.cancel()


def _finished(
    running: dict[futures.Future, int], when: str, interrupted: threading.Event
) -> Iterator[tuple[int, dict[str, Any]]]:
    while True:
        done, waiting = futures.wait(running, timeout=0.2, return_when=when)
        if interrupted.is_set():
            raise KeyboardInterrupt
        if not waiting or (done and when == futures.FIRST_COMPLETED):
            break
    for future in done:
        yield running.pop(future), future.result()


def _start_worker(builder: ChunkBuilder) -> None:
    global _builder
    _builder = builder
    end_with_parent()


def _build(number: int, chunk: Chunk) -> dict[str, Any]:
    return _builder.build(number, chunk)


def run_ray(
    builder: ChunkBuilder, chunks: Iterable[tuple[int, Chunk]], workers: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """As `run_local`, with tasks on the Ray cluster that RAY_ADDRESS names, or on one started here.

    Every node must see the output folder under the same path. A task whose node dies is run again by Ray.
    """
    try:
        import ray
    except ImportError as error:
        raise UserError("--runner=ray needs Ray: pip install 'albert-tf[ray]'") from error
    started = not ray.is_initialized()
    if started:
        here = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers}
        ray.init(logging_level="error", include_dashboard=False, **here)
    shared = ray.put(builder)
    task = ray.remote(num_cpus=1)(lambda held, number, chunk: held.build(number, chunk))
    running: dict[Any, int] = {}
    try:
        for number, chunk in chunks:
            running[task.remote(shared, number, chunk)] = number
            if len(running) > workers:
                yield from _finished_ray(ray, running, 1)
        while running:
            yield from _finished_ray(ray, running, 1)
    except ray.exceptions.RayTaskError as error:
        # The exception of the task itself, a UserError perhaps.
        raise error.cause from error
    finally:
        if started:
            ray.shutdown()


def _finished_ray(ray: Any, running: dict[Any, int], count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    for reference in ray.wait(list(running), num_returns=count)[0]:
        yield running.pop(reference), ray.get(reference)


RUNNERS = {"local": run_local, "ray": run_ray}

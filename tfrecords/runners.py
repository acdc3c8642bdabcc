"""Where chunks are built: in this process or in several on this machine. All give the same parts."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent import futures
from typing import Any

from tfrecords.corpus import Chunk
from tfrecords.writer import ChunkBuilder

_builder: ChunkBuilder


def run_local(
    builder: ChunkBuilder, chunks: Iterable[tuple[int, Chunk]], workers: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (chunk number, report) as they are done. At most two chunks a worker are in memory at a time."""
    chunks = iter(chunks)
    first = next(chunks, None)
    second = next(chunks, None) if first and workers > 1 else None
    if second is None:
        # One chunk, or one worker: a process more would only cost its start.
        for number, chunk in ([first] if first else []) if workers > 1 else _again(first, chunks):
            yield number, builder.build(number, chunk)
        return
    yield from _run_processes(builder, _again(first, _again(second, chunks)), workers)


def _again(first, rest):
    if first is not None:
        yield first
        yield from rest


def _run_processes(builder, chunks, workers):
    context = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(workers, context, _start_worker, (builder,)) as pool:
        try:
            running: dict[futures.Future, int] = {}
            for number, chunk in chunks:
                running[pool.submit(_build, number, chunk)] = number
                if len(running) >= workers + 1:
                    yield from _finished(running, futures.FIRST_COMPLETED)
            yield from _finished(running, futures.ALL_COMPLETED)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _finished(running, when):
    for future in futures.wait(running, return_when=when).done:
        yield running.pop(future), future.result()


def _start_worker(builder: ChunkBuilder) -> None:
    global _builder
    _builder = builder
    # Ctrl-C is the parent's to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def _build(number: int, chunk: Chunk) -> dict[str, Any]:
    return _builder.build(number, chunk)

"""Runs tasks in this process, in several processes, or on a Ray cluster, with the same results.

A runner is a context manager that takes a picklable worker. It yields a function that takes tasks (key, name of a
method of the worker, arguments) and yields (key, result) as tasks finish.
"""

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

from tfrecords.base.errors import UserError
from tfrecords.base.machine.processes import end_with_parent, interrupts_deferred, interrupts_held_back

Task = tuple[int, str, tuple]
Run = Callable[..., Iterator[tuple[int, Any]]]

_worker: Any


@contextlib.contextmanager
def run_local(worker: Any, workers: int) -> Iterator[Run]:
    """Runs tasks in up to `workers` processes, started when first needed."""
    with contextlib.ExitStack() as stack:
        shared: list[tuple[futures.Executor, threading.Event]] = []

        def run(tasks: list[Task], small: bool = False) -> Iterator[tuple[int, Any]]:
            if min(len(tasks), workers) < 2 or (small and not shared):
                for key, method, arguments in tasks:
                    yield key, getattr(worker, method)(*arguments)
                return
            if not shared:
                interrupted = stack.enter_context(interrupts_deferred())
                # Spawned, not forked: the caller may have TensorFlow's threads running.
                context = multiprocessing.get_context("spawn")
                pool = futures.ProcessPoolExecutor(workers, context, _start_worker, (worker,))
                shared.append((stack.enter_context(pool), interrupted))
            yield from _run_in(*shared[0], tasks)

        yield run


def _run_in(pool: futures.Executor, interrupted: threading.Event, tasks: list[Task]) -> Iterator[tuple[int, Any]]:
    with interrupts_held_back():
        running = {pool.submit(_do, method, arguments): key for key, method, arguments in tasks}
    try:
        while running:
            done, _ = futures.wait(running, timeout=0.2, return_when=futures.FIRST_COMPLETED)
            if interrupted.is_set():
                raise KeyboardInterrupt
            for future in done:
                yield running.pop(future), future.result()
    except futures.process.BrokenProcessPool as error:
        raise ChildProcessError("a worker process died, perhaps for want of memory (try fewer --workers)") from error
    finally:
        for future in running:
            future.cancel()


def _start_worker(worker: Any) -> None:
    global _worker
    _worker = worker
    end_with_parent()


def _do(method: str, arguments: tuple) -> Any:
    return getattr(_worker, method)(*arguments)


@contextlib.contextmanager
def run_ray(worker: Any, workers: int) -> Iterator[Run]:
    """Runs tasks on the Ray cluster at RAY_ADDRESS, or on one started here.

    Every node must see the output folder and the inputs under the same paths.
    """
    try:
        import ray
    except ImportError as error:
        raise UserError("--runner=ray needs Ray: pip install '.[ray]'") from error
    started = not ray.is_initialized()
    if started:
        here = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers}
        ray.init(logging_level="error", log_to_driver=False, include_dashboard=False, **here)
    shared = ray.put(worker)
    remote = ray.remote(num_cpus=1)(lambda held, method, arguments: getattr(held, method)(*arguments))

    def run(tasks: list[Task], small: bool = False) -> Iterator[tuple[int, Any]]:
        running = {remote.remote(shared, method, arguments): key for key, method, arguments in tasks}
        try:
            while running:
                (reference,), _ = ray.wait(list(running), num_returns=1)
                yield running.pop(reference), ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            # The exception of the task itself, a UserError perhaps.
            raise error.cause from error
        except ray.exceptions.RayError as error:
            raise ChildProcessError(
                f"a worker of Ray died each time its task was tried ({type(error).__name__}), perhaps for want of "
                "memory"
            ) from error

    try:
        yield run
    finally:
        if started:
            ray.shutdown()


RUNNERS = {"local": run_local, "ray": run_ray}

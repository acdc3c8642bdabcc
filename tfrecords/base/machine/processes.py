"""Handles Ctrl-C in the parent only, makes child processes end with their parent, and pauses garbage collection."""

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing import resource_tracker


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C sets; after Ctrl-C, raises KeyboardInterrupt at the end of the block."""
    interrupted = threading.Event()
    before = signal.getsignal(signal.SIGINT)
    # A command that a script started in the background has it ignored, and keeps ignoring it.
    if before == signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
    # Ctrl-C came after the last wait.
    if interrupted.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Makes processes started in the block ignore Ctrl-C; this process handles it after the block."""
    # multiprocessing would start it with the first process, and unblock SIGINT then.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Makes this multiprocessing child end when its parent ends, even if killed."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Turns automatic collections off in the block, for the whole process."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()

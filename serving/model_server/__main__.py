"""Serves exported models with TensorFlow Serving's protocol: `python -m serving.model_server --help`."""

import contextlib
import gc
import logging
import os
import queue
import signal
import sys
import threading
import time
from importlib import metadata

from serving.model_server import flags
from tfrecords.base.errors import UserError
from tfrecords.base.machine.cpu import limited_cores
from tfrecords.base.script import command_name, leave_a_closed_pipe
from tfrecords.base.settings import help_text

_FAILED = 255
# The release whose contract is kept, in the words and the form of the real server.
_VERSION = "TensorFlow ModelServer: 2.20.0"
_CLOSING_SECONDS = 2.0
# A thread that computes lets another one in after this time; at Python's 5 ms, a small request waits for a large body
# that long at each of its dozen steps.
_SWITCH_SECONDS = 0.0005


def main(arguments: list[str]) -> int:
    """Serves until SIGTERM or SIGINT; returns 0, or 255 if it cannot start."""
    try:
        options, unknown = flags.parse(arguments)
    except UserError as error:
        print(f"{error}\n{flags.usage()}")
        return _FAILED
    if options.help or options.helpfull:
        print(help_text(flags.ServerOptions, command_name(flags.MODULE), flags.ABOUT, options.helpfull, switches=False))
        return 0
    if options.version:
        print(_version())
        return 0
    if unknown:
        print(f"unknown argument: {unknown[0]}\n{flags.usage(unknown[0])}", flush=True)
    # TensorFlow writes its own log to stderr, so ours goes there too: by a way of its own, since what is written there
    # while TensorFlow is imported is lost.
    stream = os.fdopen(os.dup(2), "w", buffering=1)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=stream)
    if limit := limited_cores():
        logging.getLogger(__name__).info(limit)
    return _serve(options)


def _serve(options: flags.ServerOptions) -> int:
    server = None
    # Whoever rotates the log sends it; a log that was moved is opened anew without it.
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # --help and bad flags answer without them.
    from serving.http_protocol import raise_file_limit
    from serving.model_server.server import ModelServer
    from serving.model_server.status import StatusError, as_status_error

    # The objects of the libraries stay: a collection that walked all of them would stop every request for a quarter of
    # a second. Models come after this, so theirs are collected when they go.
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(_SWITCH_SECONDS)
    raise_file_limit()
    # Not an Event: its `set` waits for a lock that the interrupted `wait` may hold.
    received, stopped = [], queue.SimpleQueue()

    def stop(number, frame):
        if received:
            # Asked twice: do not wait for requests that may never end.
            os._exit(128 + number)
        received.append(number)
        stopped.put(number)
        if server is not None:
            server.interrupt()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        server = ModelServer(options)
        if received:
            server.interrupt()
        if not server.start():
            # What still loads in other threads serves nobody, and nothing can cut it off.
            print("interrupted while models were loading", file=sys.stderr)
            _end_at_once()
    except (StatusError, UserError) as error:
        message = f"Failed to start server. Error: {as_status_error(error)}"
        print(message, flush=True)
        if not os.path.sameopenfile(1, 2):
            logging.getLogger(__name__).error(message)
        if server is not None:
            server.stop(grace=0)
        return _FAILED
    # A signal that comes just before a wait begins does not wake it.
    while not received:
        with contextlib.suppress(queue.Empty):
            stopped.get(timeout=1)
    _drain(server, options.drain_seconds)
    return 0


# Nothing can cut off the run of a graph or the conversion of a large body, so the process ends where one outlives this.
def _drain(server, seconds: float) -> None:
    end = time.monotonic() + seconds + _CLOSING_SECONDS
    stopping = threading.Thread(target=server.stop, args=(seconds,))
    stopping.start()
    # Python itself waits for all of these before it ends.
    others = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    for thread in others:
        thread.join(max(0.0, end - time.monotonic()))
    if any(thread.is_alive() for thread in others):
        logging.getLogger(__name__).warning("Requests still ran after --drain_seconds=%g: they are cut off.", seconds)
        _end_at_once()


def _end_at_once() -> None:
    logging.shutdown()
    os._exit(0)


def _version() -> str:
    return f"{_VERSION}\nTensorFlow Library: {metadata.version('tensorflow')}"


def run() -> None:
    """Runs the command."""
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:
        leave_a_closed_pipe()


if __name__ == "__main__":
    run()

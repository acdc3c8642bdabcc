"""Detects whether this process was started as one of our commands."""

import os
import signal
import sys

_PACKAGES = ("tfrecords", "albert_tf", "serving")


def is_our_command() -> bool:
    """Returns whether this process is `python -m albert_tf.run_...`, or an installed script."""
    if "-m" in sys.orig_argv:
        return sys.orig_argv[sys.orig_argv.index("-m") + 1].split(".")[0] in _PACKAGES
    return os.path.basename(sys.argv[0]).startswith("albert-")


def end_quietly_when_interrupted() -> None:
    """Ends without a traceback at a Ctrl-C while a command imports its modules."""
    shown = sys.excepthook

    def hook(kind, error, traceback):
        if issubclass(kind, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
            sys.stdout.flush()
            # As `script.run_main` ends; Python's own end would be death by the signal.
            os._exit(130)
        shown(kind, error, traceback)

    sys.excepthook = hook


def insist_when_interrupted() -> None:
    """Raises KeyboardInterrupt at a Ctrl-C once a second until the program leaves by it: TensorFlow swallows some."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number, frame):
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    # What is cleaned up on the way out goes on.
    if number == signal.SIGINT or not _is_leaving(sys.exc_info()[1]):
        raise KeyboardInterrupt


def _is_leaving(error: BaseException | None) -> bool:
    return isinstance(error, KeyboardInterrupt) or (error is not None and _is_leaving(error.__context__))


def stop_insisting() -> None:
    """Ends what `insist_when_interrupted` began, where a Ctrl-C was met."""
    signal.setitimer(signal.ITIMER_REAL, 0)


if is_our_command():
    end_quietly_when_interrupted()

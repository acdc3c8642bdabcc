"""Detects whether this process was started as one of our commands."""

import os
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


if is_our_command():
    end_quietly_when_interrupted()

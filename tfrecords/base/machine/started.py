"""Prepares a process, before NumPy and TensorFlow: their threads, Ctrl-C of commands, TensorFlow's symbols."""

import contextlib
import os
import signal
import sys
import warnings
from importlib.machinery import ModuleSpec

from tfrecords.base.machine.cpu import limit_libraries

_PACKAGES = ("tfrecords", "albert_tf", "serving")


def is_our_command() -> bool:
    """Returns whether this process is `python -m albert_tf.run_...`, or an installed script."""
    # The words before the command's own arguments: a script may have an argument -m, too.
    start = sys.orig_argv[-1 - len(sys.argv) :][:2]
    is_module = start[:1] == ["-m"] and start[-1].split(".")[0] in _PACKAGES
    return is_module or os.path.basename(sys.argv[0]).startswith("albert-")


def end_quietly_when_interrupted() -> None:
    """Makes Ctrl-C end a command without a traceback, even during its imports."""
    shown = sys.excepthook

    def hook(kind, error, traceback):
        if is_interruption(error):
            print("interrupted", file=sys.stderr)
            sys.stdout.flush()
            # As `script.run_main` ends; Python's own end would be death by the signal.
            os._exit(130)
        shown(kind, error, traceback)

    sys.excepthook = hook


def insist_when_interrupted() -> None:
    """Makes Ctrl-C raise KeyboardInterrupt, and again every second, since TensorFlow swallows some.

    Windows has no alarms; there Ctrl-C is Python's.
    """
    if hasattr(signal, "SIGALRM") and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        shown = sys.unraisablehook
        # The exception is lost in a destructor or a callback, such as numba's, so it is raised again.
        sys.unraisablehook = lambda ignored: None if is_interruption(ignored.exc_value) else shown(ignored)


def _interrupt(number, frame):
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.0)
    # Does not interrupt the cleanup after a KeyboardInterrupt.
    if number == signal.SIGINT or not is_interruption(sys.exc_info()[1]):
        raise KeyboardInterrupt


def is_interruption(error: BaseException | None) -> bool:
    """Whether the error is a Ctrl-C, or was caused by one."""
    chain = [error]
    for one in chain:
        if isinstance(one, KeyboardInterrupt):
            return True
        if one is not None:
            chain += [other for other in (one.__cause__, one.__context__) if other not in chain]
    return False


def stop_insisting() -> None:
    """Stops the repeated KeyboardInterrupts of `insist_when_interrupted`."""
    # Another's alarm stays, such as that of a test's time limit.
    if hasattr(signal, "SIGALRM") and signal.getsignal(signal.SIGALRM) is _interrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)


limit_libraries()
if is_our_command():
    end_quietly_when_interrupted()


# TensorFlow 2.20 and 2.21 load themselves with RTLD_GLOBAL if they can import this module. A library that is loaded
# later, such as triton (by torch 2.14), then takes their LLVM for its own, and the process ends by a segmentation fault
# (tensorflow issue 124205, cured in 2.22).
_FLAGS = "tensorflow.python.pywrap_dlopen_global_flags"
_VERSIONS = ("2.20.", "2.21.")


class LocalSymbols:
    """A finder of modules that lets the import of _FLAGS fail, which TensorFlow expects of its other builds."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Raises ImportError for that module of those versions, warns where it came too late; finds nothing."""
        if name == "triton" and _FLAGS in sys.modules:
            text = "TensorFlow was imported before albert_tf, so triton may end this process; import albert_tf first"
            warnings.warn(text, stacklevel=2)
        if name == _FLAGS and _version().startswith(_VERSIONS):
            raise ModuleNotFoundError(f"{name} is not to be imported", name=name)
        return None


def _version() -> str:
    # Here, since whoever only calls a server need not wait for it.
    from importlib import metadata

    for name in ("tensorflow", "tensorflow-cpu"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return ""


sys.meta_path.insert(0, LocalSymbols)

"""Starts and ends every command of the three packages."""

import atexit
import contextlib
import errno
import gc
import logging
import os
import re
import shlex
import sys
import weakref
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import NoReturn

from absl import app, flags
from absl import logging as absl_logging

from tfrecords.base.errors import UserError
from tfrecords.base.machine.cpu import limited_cores
from tfrecords.base.machine.started import insist_when_interrupted, is_interruption, stop_insisting
from tfrecords.base.settings import define_flags, former, help_text, read_flags
from tfrecords.base.version import VERSION

# The flags that `run_main` defines belong to the command, as those of `define_flags`.
flags.disclaim_key_flags()


def run_main(main: Callable[..., None], settings_class: type | None = None) -> None:
    """Parses absl flags, runs `main`, and exits with a status.

    UserError: one line on stderr, status 1. Wrong flags: status 2. Ctrl-C: status 130. --help begins with the docstring
    of main's module. The fields of `settings_class` become flags.
    """
    if settings_class is not None:
        define_flags(settings_class)

    def checked(arguments: list[str]) -> None:
        if len(arguments) > 1:
            sys.exit(f"error: unexpected argument '{arguments[1]}'; flags are written --name=value")
        # Hides libraries' messages about every file they write; the commands print their own progress.
        absl_logging.set_verbosity(absl_logging.WARNING)
        logging.getLogger("tensorflow").setLevel(logging.WARNING)
        if limit := limited_cores():
            print(limit, file=sys.stderr)
        try:
            main(*([] if settings_class is None else [read_flags(settings_class)]))
        except Exception as error:
            if is_interruption(error):
                raise KeyboardInterrupt from error
            raise

    # Python's last collection would search all objects of TensorFlow and Keras: more than a second, to free nothing.
    atexit.register(gc.freeze)
    insist_when_interrupted()
    try:
        app.run(checked, flags_parser=lambda arguments: _parse(arguments, main.__module__, settings_class))
    except UserError as error:
        # One line: a traceback would bury the sentence that says how to go on.
        _end(f"error: {error}", 1)
    except KeyboardInterrupt:
        stop_insisting()
        with contextlib.suppress(SystemExit):
            _end("interrupted", 130)
        # TensorFlow's threads may still run; an interpreter that is taken down around them crashes now and then.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(130)
    except BrokenPipeError:
        leave_a_closed_pipe()
    except Exception as error:
        if (explained := _explained(error)) is None:
            raise
        _end(f"error: {explained}", 1)
    finally:
        # An alarm that goes off while Python ends would kill the process.
        stop_insisting()


def start_tensorflow() -> None:
    """Imports TensorFlow without its messages; commands call it once their flags are right, since it takes seconds."""
    if (backend := os.environ.get("KERAS_BACKEND", "tensorflow")) != "tensorflow":
        raise UserError(f"KERAS_BACKEND={backend}: this command needs tensorflow; unset KERAS_BACKEND")
    if "tensorflow" not in sys.modules:
        import tfrecords.base.machine.quiet_tensorflow  # noqa: F401

        # What is imported stays; later collections need not search it.
        gc.freeze()


def leave_a_closed_pipe() -> NoReturn:
    """Ends the process quietly when its output's reader has gone, as `| head` does."""
    # The interpreter must not try to flush the rest.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(141)


def _end(message: str, status: int) -> NoReturn:
    for bar in list(_bars):
        bar.close()
    print(_by_name(message), file=sys.stderr)
    sys.exit(status)


_bars: weakref.WeakSet = weakref.WeakSet()


def progress_bar(iterable: Iterable | None = None, **options):
    """A tqdm bar on stderr that redraws every 0.5 s on a terminal, every 15 s in a log file."""
    from tqdm import tqdm  # Not at the top: the client has none.

    interval = 0.5 if sys.stderr.isatty() else 15.0
    bar = tqdm(iterable, file=sys.stderr, mininterval=interval, maxinterval=interval, dynamic_ncols=True, **options)
    _bars.add(bar)
    return bar


def say_next(command: str) -> None:
    """Prints on stderr which command to run next."""
    print(f"next: {_by_name(command)}", file=sys.stderr)


def say_export(model: str | os.PathLike, *flags: str) -> None:
    """Prints on stderr the command that exports a model to models/."""
    name = Path(model).resolve().name.removesuffix(".keras")
    paths = [f"--model={shlex.quote(str(model))}", f"--output_dir={shlex.quote(f'models/{name}')}"]
    say_next(" ".join(["python -m serving.export", *paths, *flags]))


# By module, the names of the command `albert-tf`, which fills it.
names: dict[str, str] = {}


def _by_name(text: str) -> str:
    return re.sub(r"python -m ([\w.]+)", lambda found: names.get(found[1], found[0]), text)


_DAMAGED_RECORD = ("corrupted record at", "truncated record at", "Could not parse example input")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _explained(error: Exception) -> str | None:
    kind, text = type(error).__name__, str(error)
    # TensorFlow's message may quote the bytes of a record, so that Python cannot read it.
    quoting = error.object.decode(errors="replace") if isinstance(error, UnicodeDecodeError) else text
    if any(words in quoting for words in _DAMAGED_RECORD):
        return (
            "a record file is damaged; "
            "python -m tfrecords.inspect_examples --input=ITS_FOLDER --sample=0 says which: copy or build it anew"
        )
    full = isinstance(error, OSError) and error.errno in _FULL
    name = getattr(error, "filename", None)
    if full or any(os.strerror(number) in text for number in _FULL):
        place = f" at '{name}'" if full and name else ""
        return f"the disk is full, or a file is larger than allowed{place}; make room, then give the same command again"
    if kind in ("UnavailableError", "AbortedError", "InternalError", "DeadlineExceededError") and _COLLECTIVE in text:
        return "another process of this run is gone; give the same command again on all: it goes on from its checkpoint"
    return None


# A phrase in all of TensorFlow's messages about a process that its strategy cannot reach.
_COLLECTIVE = "ollective"


def command_name(module: str) -> str:
    """Returns the command to type: an installed script, or `python -m MODULE`."""
    typed = os.path.basename(sys.argv[0])
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name if module == "__main__" and spec else module
    return typed if typed.startswith("albert-") else f"python -m {name.removesuffix('.__main__')}"


def version_line() -> str:
    """Returns the library, TensorFlow and Keras versions as text."""
    others = []
    for title, name in (("TensorFlow", "tensorflow"), ("Keras", "keras")):
        with contextlib.suppress(metadata.PackageNotFoundError):
            others.append(f"{title} {metadata.version(name)}")
    return f"albert-tf {VERSION}" + (f" ({', '.join(others)})" if others else "")


def present_versions() -> dict[str, str]:
    """Returns the versions of the packages with which exports are made."""
    others = ("tensorflow", "keras", "tensorflow-text")
    return {"albert-tf": VERSION} | {name: metadata.version(name) for name in others}


def _parse(arguments: list[str], module: str, settings_class: type | None) -> list[str]:
    # absl's own --help shows the flags of the file that was started; for an installed command that is pip's wrapper.
    asked = {argument.lstrip("-") for argument in arguments[1:] if argument.startswith("-")}
    if asked & {"help", "h", "helpfull"}:
        about = (sys.modules[module].__doc__ or "").strip()
        if settings_class is None:
            of_module = flags.FLAGS.main_module_help() if module == "__main__" else flags.FLAGS.module_help(module)
            print(f"{about}\n{of_module}")
        else:
            print(help_text(settings_class, command_name(module), about, "helpfull" in asked))
        sys.exit(0)
    if "version" in asked and arguments[-1] == "--version":
        print(version_line())
        sys.exit(0)
    try:
        return flags.FLAGS(arguments)
    except flags.Error as error:
        # absl gives one line a flag, says "other than None" where it means "missing", and quotes Python's own words.
        lines = (re.sub(r"flag --(\w+)=None: .*", r"--\1=... must be given", line) for line in str(error).splitlines())
        lines = (re.sub(r"invalid literal for int\(\).*", "must be a whole number", line) for line in lines)
        lines = (re.sub(r"could not convert string to float.*", "must be a number", line) for line in lines)
        instead = former(settings_class, getattr(error, "flagname", ""))
        print(f"error: {instead or '; '.join(lines)} (--help lists the flags)", file=sys.stderr)
        sys.exit(2)

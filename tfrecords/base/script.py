"""How every command of the three packages starts and ends."""

import errno
import logging
import os
import re
import sys
from collections.abc import Callable

from absl import app, flags
from absl import logging as absl_logging

from tfrecords.base.collisions import find_collisions
from tfrecords.base.errors import UserError
from tfrecords.base.settings import define_flags, read_flags

# The flags that `run_main` defines belong to the command, as those of `define_flags`.
flags.disclaim_key_flags()


def run_main(main: Callable[..., None], settings_class: type | None = None) -> None:
    """Parses absl flags, runs `main`, and leaves with a status the shell can trust.

    UserError: one line on stderr, status 1. Ctrl-C: status 130. Wrong flags: status 2. Anything else is our bug and
    keeps its traceback. Installed packages that collide with ours are named on stderr first.

    Args:
        main: The command's function, of no argument, or of the settings where there is a `settings_class`. Its module's
            docstring is what --help begins with.
        settings_class: A dataclass whose fields become the command's flags (see `settings`).
    """
    if settings_class is not None:
        define_flags(settings_class)

    def checked(arguments: list[str]) -> None:
        if len(arguments) > 1:
            sys.exit(f"error: unexpected argument '{arguments[1]}'; flags are written --name=value")
        # Libraries announce every file they write; what the user waits for, the commands say themselves.
        absl_logging.set_verbosity(absl_logging.WARNING)
        logging.getLogger("tensorflow").setLevel(logging.WARNING)
        main(*([] if settings_class is None else [read_flags(settings_class)]))

    for sentence in find_collisions():
        print(f"warning: {sentence}", file=sys.stderr)
    try:
        app.run(checked, flags_parser=lambda arguments: _parse(arguments, main.__module__))
    except UserError as error:
        # `from None` and one line: a traceback would bury the sentence that tells how to mend it.
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output (`| head`) has seen enough; the interpreter must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        if (explained := _explained(error)) is None:
            raise
        print(f"error: {explained}", file=sys.stderr)
        sys.exit(1)


def say_next(command: str) -> None:
    """Tells on stderr, where no program reads it, what to do with what a command made."""
    print(f"next: {command}", file=sys.stderr)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _explained(error: Exception) -> str | None:
    """What befell the machine, not the program; TensorFlow's errors are known by name, without importing it."""
    kind, text = type(error).__name__, str(error)
    if kind == "DataLossError" and "corrupted record" in text:
        return (
            "a record file is damaged (its size is right, its bytes are not); "
            "python -m tfrecords.inspect_examples --input=ITS_FOLDER --sample=0 says which: copy or build it anew"
        )
    full = isinstance(error, OSError) and error.errno in _FULL
    if full or any(os.strerror(number) in text for number in _FULL):
        place = f" at '{error.filename}'" if full and error.filename else ""
        return f"the disk is full, or a file is larger than allowed{place}; make room, then give the same command again"
    if kind in ("UnavailableError", "AbortedError", "InternalError", "DeadlineExceededError") and _COLLECTIVE in text:
        return "another process of this run is gone; give the same command again on all: it goes on from its checkpoint"
    return None


# In each of TensorFlow's accounts of a process that its strategy no longer reaches.
_COLLECTIVE = "ollective"


def _parse(arguments: list[str], module: str) -> list[str]:
    # absl's own --help shows the flags of the file that was started; for an installed command that is pip's wrapper.
    if {"--help", "-help", "-h"} & set(arguments):
        of_module = flags.FLAGS.main_module_help() if module == "__main__" else flags.FLAGS.module_help(module)
        print(f"{(sys.modules[module].__doc__ or '').strip()}\n{of_module}")
        sys.exit(0)
    try:
        return flags.FLAGS(arguments)
    except flags.Error as error:
        # absl gives one line a flag and says "other than None" where it means "missing".
        lines = (re.sub(r"flag --(\w+)=None: .*", r"--\1=... must be given", line) for line in str(error).splitlines())
        print(f"error: {'; '.join(lines)} (--help lists the flags)", file=sys.stderr)
        sys.exit(2)

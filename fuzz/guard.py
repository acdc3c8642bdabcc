"""The rule of all targets, and the faults that are found against it."""

import hashlib
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
# An input of a few kilobytes: seconds of the CPU, and megabytes that the process grows by.
MAX_SECONDS, MAX_MEGABYTES, MAX_CHARACTERS = 5.0, 512, 20_000


class Bound(Exception):
    """An input took more than its share."""


def guarded(check: Callable[[bytes], None], promised: tuple[type[Exception], ...]) -> Callable[[bytes], None]:
    """Returns `check` as the rule has it: it returns, or raises what is a fault.

    A promised error's message is at most MAX_CHARACTERS long.
    """

    def run(data: bytes) -> None:
        begin, before = time.process_time(), _peak()
        try:
            check(data)
        except promised as error:
            if len(str(error)) > MAX_CHARACTERS:
                raise Bound(f"the message of {type(error).__name__} has {len(str(error)):,} characters") from error
        if (seconds := time.process_time() - begin) > MAX_SECONDS:
            raise Bound(f"{seconds:.1f} s of the CPU for {len(data)} bytes")
        if (grown := _peak() - before) > MAX_MEGABYTES:
            raise Bound(f"{grown:.0f} MB more memory for {len(data)} bytes")

    return run


def _peak() -> float:
    """The largest resident size so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def place_of(error: BaseException) -> str:
    """Returns what faults are told apart by: the error's type, and the last lines of this repository that it passed."""
    lines = [
        f"{Path(frame.filename).relative_to(ROOT)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(f"{ROOT}/") and ".venv" not in frame.filename
    ]
    kept = [line for line in lines if not line.startswith("fuzz/")] or lines
    return f"{type(error).__name__} at {' <- '.join(reversed(kept[-3:]))}"


class Faults:
    """The faults found so far, a folder with an input and a traceback of each."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._known = {path.name for path in folder.glob("*.txt")}

    def add(self, error: BaseException, data: bytes) -> None:
        name = hashlib.sha256(place_of(error).encode()).hexdigest()[:12]
        if f"{name}.txt" in self._known:
            return
        self._known.add(f"{name}.txt")
        (self._folder / f"{name}.bytes").write_bytes(data)
        told = "".join(traceback.format_exception(error))
        (self._folder / f"{name}.txt").write_text(f"{place_of(error)}\n{data!r}\n{told}", errors="backslashreplace")
        print(f"fault: {place_of(error)}: {error}"[:300], file=sys.stderr, flush=True)

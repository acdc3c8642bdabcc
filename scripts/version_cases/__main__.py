"""Runs one group of cases in the version that PYTHONPATH names: `python -m version_cases GROUP RESULTS`."""

import os
import re
import sys
import time
import traceback
from pathlib import Path

from .groups import Folders, cases_of
from .results import save


def main(group: str, results: str, write: str, read: str, wanted: str = "") -> None:
    """Runs the cases of a group one after the other and saves what they return.

    Args:
        group: of GROUPS.
        results: file to write.
        write: folder where this version leaves files for the other.
        read: folder with the files of the version before.
        wanted: regular expression; only cases whose names have a match are run.
    """
    folders = Folders(Path(write), Path(read), Path.cwd())
    for folder in (folders.write, folders.scratch):
        folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, case, *arguments in cases_of(group, folders):
        if not re.search(wanted, name):
            continue
        started = time.perf_counter()
        try:
            found[name] = case(*arguments)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            traceback.print_exc()
            found[name] = {"failed": f"{type(error).__name__}: {error}"}
        if os.getpid() == PROCESS:
            print(f"{group}: {name} {time.perf_counter() - started:.1f} s", flush=True)
    save(Path(results), found)


if __name__ == "__main__":
    PROCESS = os.getpid()
    main(*sys.argv[1:])

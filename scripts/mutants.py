"""Plants the faults of tests/mutants.toml in a copy of this checkout, one at a time, and says which the tests catch.

    python -m scripts.mutants                          all of them
    python -m scripts.mutants --only='masking|lamb'    those whose file or promise matches
    python -m scripts.mutants --list

Each fault replaces a text that occurs once in its file. The tests near it run until the first failure, without those
marked `slow`. The status is 1 where a fault lives that the table does not expect to live.
"""

import collections
import concurrent.futures
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from scripts import command
from scripts.imports import ROOT

TABLE = ROOT / "tests" / "mutants.toml"
# pytest's own statuses.
PASSED, FAILED = 0, 1


@dataclass(frozen=True)
class Mutant:
    """A fault, and what should notice it.

    Attributes:
        file: the path of the source file.
        old: a text that occurs once in it.
        new: what takes its place.
        promise: what it breaks.
        tests: the test files near it.
        lives: why no test notices it; empty where one must.
    """

    file: str
    old: str
    new: str
    promise: str
    tests: tuple[str, ...]
    lives: str = ""


def read_mutants(path: Path = TABLE) -> list[Mutant]:
    """Raises ValueError where a fault cannot be planted as the table says."""
    mutants = [
        Mutant(**entry | {"tests": tuple(entry["tests"])}) for entry in tomllib.loads(path.read_text())["mutant"]
    ]
    for mutant in mutants:
        source = ROOT / mutant.file
        count = source.read_text("utf-8").count(mutant.old) if source.exists() else 0
        if count != 1 or mutant.old == mutant.new:
            raise ValueError(
                f"{mutant.file} holds {mutant.old!r} {count} times; a fault replaces a text that occurs once"
            )
        if missing := [test for test in mutant.tests if not (ROOT / test).exists()] or not mutant.tests:
            raise ValueError(f"{mutant.file}: no tests {missing}")
    return mutants


def main() -> int:
    """Returns the status of the command."""
    parser = command.parser(__doc__)
    parser.add_argument("--only", default="", help="a regular expression of files and promises")
    parser.add_argument("--table", type=Path, default=TABLE, help="the faults")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="faults at a time")
    parser.add_argument("--list", action="store_true", help="print the table, and plant nothing")
    arguments = parser.parse_args()
    try:
        mutants = [m for m in read_mutants(arguments.table) if re.search(arguments.only, f"{m.file} {m.promise}")]
    except (OSError, ValueError, re.error) as error:
        parser.error(str(error))
    if not mutants:
        parser.error(f"--only={arguments.only} matches no fault")
    if arguments.list:
        for mutant in mutants:
            print(f"{mutant.file}: {mutant.promise}{f' (lives: {mutant.lives})' if mutant.lives else ''}")
        return 0
    counts: dict[str, int] = collections.Counter()
    unexpected = 0
    with tempfile.TemporaryDirectory(prefix="mutants_") as folder:
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(arguments.jobs):
            copies.put(_copy(Path(folder) / str(number)))
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            running = {pool.submit(_plant, mutant, copies): mutant for mutant in mutants}
            for done in concurrent.futures.as_completed(running):
                mutant, (word, detail) = running[done], done.result()
                counts[word] += 1
                unexpected += word != ("lives" if mutant.lives else "caught")
                print(
                    f"[{sum(counts.values())}/{len(mutants)}] {word}: {mutant.file}: {mutant.promise} {detail}",
                    flush=True,
                )
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return bool(unexpected)


def _copy(folder: Path) -> Path:
    """A copy of the files that git tracks or would track."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def _plant(mutant: Mutant, copies: queue.Queue) -> tuple[str, str]:
    """Returns "caught", "lives" or "unclear", and what the tests said."""
    copy = copies.get()
    source = copy / mutant.file
    original, start = source.read_text("utf-8"), time.monotonic()
    try:
        source.write_text(original.replace(mutant.old, mutant.new), "utf-8")
        shared = os.environ.get("ALBERT_TF_SHARED", str(ROOT.parent / "shared"))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests]
        environment = os.environ | {"PYTHONPATH": str(copy), "ALBERT_TF_SHARED": shared, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=900)
        except subprocess.TimeoutExpired:
            return "caught", "(the tests did not end)"
        seconds = f"({time.monotonic() - start:.0f} s)"
        failures = re.findall(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.MULTILINE)
        if ended.returncode == FAILED:
            return "caught", f"by {failures[0] if failures else '?'} {seconds}"
        if ended.returncode == PASSED:
            return "lives", seconds
        if ended.returncode < 0:
            return "caught", f"(the tests were ended by signal {-ended.returncode}) {seconds}"
        # An error while tests are collected catches it too; no test at all does not.
        return ("caught", f"by {failures[0]} {seconds}") if failures else ("unclear", ended.stdout[-300:])
    finally:
        source.write_text(original, "utf-8")
        copies.put(copy)


if __name__ == "__main__":
    command.run(main)

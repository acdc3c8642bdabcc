"""Runs the same cases in an older commit and in this tree, and compares every array to the bit.

python -m scripts.compare_versions --before=COMMIT [--only=GROUP,GROUP] [--cases=REGEX]
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.imports import ROOT
from scripts.version_cases.comparison import Difference, compare, table, write_csv
from scripts.version_cases.groups import GROUPS
from scripts.version_cases.results import load

CASES = Path(__file__).parent / "version_cases"
CACHE = Path(tempfile.gettempdir()) / f"albert_tf_versions_{os.getuid()}"
# Sums in one order, whatever else the machine does.
ENVIRONMENT = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "PYTHONHASHSEED": "0",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TZ": "UTC",
    "LC_ALL": "C.UTF-8",
    "COLUMNS": "100",
}
# What the caller's shell may say and the cases must not hear.
_UNSET = ("KERAS_BACKEND", "TF_CONFIG", "ALBERT_TF_CPUINFO", "TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA")
# `from .name import ...` and `from . import name`.
_IMPORTED = re.compile(r"^from \.(?: import )?(\w+)", re.MULTILINE)
_LIBRARIES = ("tensorflow", "keras", "tensorflow-text", "jax", "numpy", "numba", "sentencepiece", "tokenizers")


class GroupFailed(Exception):
    """A group's process ended before it had saved its results."""


@contextlib.contextmanager
def checked_out(commit: str, root: Path = ROOT) -> Iterator[Path]:
    """Checks a commit out next to the tree for as long as the context lasts; Ctrl-C and SIGTERM remove it too."""
    folder = Path(tempfile.mkdtemp(prefix=f".{root.name}-{commit[:10]}-", dir=root.parent))
    git = ["git", "-C", str(root), "worktree"]
    try:
        subprocess.run([*git, "add", "--quiet", "--detach", "--force", str(folder), commit], check=True)
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)  # Where git had not begun.


def full_commit(name: str, root: Path = ROOT) -> str:
    """Returns the hash of a commit; exits with a sentence where there is none."""
    command = ["git", "-C", str(root), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode:
        sys.exit(f"error: --before={name} is no commit of this repository; git log lists them")
    return found.stdout.strip()


def cache_key(group: str, wanted: str = "") -> str:
    """Returns what the results of a group depend on but for the commit, as a hash."""
    versions = [f"{name} {_version(name)}" for name in _LIBRARIES]
    cases = [hash_of_cases(GROUPS[group].module), str(GROUPS[group].options), str(GROUPS[group].environment), wanted]
    return hashlib.sha256("\n".join([*cases, sys.version, _processor(), *versions]).encode()).hexdigest()[:16]


def hash_of_cases(module: str) -> str:
    """Returns a hash of the code of a group's cases: its module, all that this one imports, and what runs it."""
    left, reached = [module, "__main__"], set()
    while left:
        name = left.pop()
        if name not in reached and (CASES / f"{name}.py").is_file():
            reached.add(name)
            left += _IMPORTED.findall((CASES / f"{name}.py").read_text())
    digest = hashlib.sha256()
    for name in sorted(reached - {"groups"}):
        digest.update(name.encode() + (CASES / f"{name}.py").read_bytes())
    return digest.hexdigest()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _processor() -> str:
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((line for line in lines if line.startswith("flags")), "")
    return ""


class Processes:
    """Runs the groups' processes, and ends all of them at once."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen] = set()
        self._lock, self._is_over = threading.Lock(), False

    def run(self, command: list[str], **options: Any) -> int:
        """Runs a command to its end; returns its status."""
        with self._lock:
            if self._is_over:
                raise GroupFailed("not started")
            process = subprocess.Popen(command, start_new_session=True, **options)
            self._running.add(process)
        status = process.wait()
        with self._lock:
            self._running.discard(process)
        return status

    def end(self) -> None:
        """Ends what runs, with the commands that it started, and starts no more."""
        with self._lock:
            self._is_over, running = True, list(self._running)
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@dataclass
class Side:
    """One version: its tree, and where its groups leave their results.

    Attributes:
        name: "before" or "after".
        tree: the checkout; None where all that is asked for is in the cache.
        folder: for results and for files that the other version reads.
        cases: the folder that holds the package of cases.
        wanted: regular expression of the names of the cases to run.
        processes: runs them.
        keys: of a folder that outlasts the command, what each group's results are kept under.
    """

    name: str
    tree: Path | None
    folder: Path
    cases: Path
    wanted: str
    processes: Processes
    keys: dict[str, str] = field(default_factory=dict)

    def has(self, group: str) -> bool:
        """Returns whether the group has been run."""
        return self.results(group).is_file()

    def results(self, group: str) -> Path:
        """Returns the file of a group's results."""
        return self.place(group) / "results.npz"

    def place(self, group: str) -> Path:
        """Returns the folder of a group."""
        return self.folder / "-".join([group, *filter(None, [self.keys.get(group)])])

    def run(self, group: str, before: "Side") -> None:
        """Runs a group in a process of its own.

        Raises:
            GroupFailed: the process ended without results; the message has the last lines that it printed.
        """
        folder = self.place(group)
        shutil.rmtree(folder, ignore_errors=True)
        scratch = folder / "scratch"
        scratch.mkdir(parents=True)
        variables = {name: value for name, value in os.environ.items() if name not in _UNSET}
        variables |= ENVIRONMENT | GROUPS[group].environment
        variables["PYTHONPATH"] = os.pathsep.join([str(self.cases), str(self.tree)])
        read = (before.place(group) / "left").resolve()
        command = [sys.executable, "-m", "version_cases", group, str(self.results(group).resolve())]
        command += [str((folder / "left").resolve()), str(read), self.wanted]
        log = folder / "log.txt"
        with open(log, "w") as file:
            streams = {"stdout": file, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
            status = self.processes.run(command, cwd=scratch, env=variables, **streams)
        shutil.rmtree(scratch, ignore_errors=True)
        if not self.has(group):
            lines = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise GroupFailed(f"{self.name}: group '{group}' ended with status {status}:\n{lines}")


def compare_group(group: str, before: Side, after: Side) -> tuple[str, int, int, list[Difference]]:
    """Runs a group where it has not been run, and compares.

    Returns:
        The group, how many cases and arrays there are, and what differs.
    """
    if not before.has(group):
        before.run(group, before)
    after.run(group, before)
    loaded = [load(side.results(group)) for side in (before, after)]
    results = [{case: found[case] for case in found if re.search(after.wanted, case)} for found in loaded]
    arrays = sum(len(values) for values in results[1].values())
    return group, len(results[1]), arrays, compare(group, *results)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command; returns 1 where anything differs, 0 where nothing does."""
    options = _options(arguments)
    if options.list:
        for name, group in GROUPS.items():
            print(f"{name:18} {group.about}")
        return 0
    chosen = [name.strip() for name in options.only.split(",") if name.strip()] or list(GROUPS)
    unknown = [name for name in chosen if name not in GROUPS]
    if unknown:
        sys.exit(f"error: --only={unknown[0]} is no group; these are: {', '.join(GROUPS)}")
    commit = full_commit(options.before)
    started, processes = time.monotonic(), Processes()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compare_versions_")))
        shutil.copytree(CASES, work / "cases" / CASES.name, ignore=shutil.ignore_patterns("__pycache__"))
        keys = {name: cache_key(name) for name in chosen}
        before = Side("before", None, CACHE / commit[:12], work / "cases", options.cases, processes, keys)
        after = Side("after", ROOT, work / "after", work / "cases", options.cases, processes)
        for name in chosen:
            # A part of the cases has results of its own, unless there are those of all.
            if options.cases and not before.has(name):
                keys[name] = cache_key(name, options.cases)
            if options.fresh:
                shutil.rmtree(before.place(name), ignore_errors=True)
        if not all(map(before.has, chosen)):
            before.tree = stack.enter_context(checked_out(commit))
        print(f"before: {commit[:12]}{'' if before.tree else ' (from the cache)'}, after: {ROOT}", flush=True)
        pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
        stack.callback(pool.shutdown)
        stack.callback(processes.end)
        futures = [pool.submit(compare_group, name, before, after) for name in GROUPS if name in chosen]
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        rows, failed = [], []
        for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
            try:
                rows.append(future.result())
                group, count, arrays, differences = rows[-1]
                said = f"{group}: {count} cases, {arrays} arrays, {len(differences)} differ"
            except GroupFailed as error:
                failed.append(str(error))
                said = str(error)
            minutes = (time.monotonic() - started) / 60
            print(f"[{done}/{len(futures)}, {minutes:.1f} min] {said}", flush=True)
        if options.logs:
            shutil.copytree(after.folder, options.logs, dirs_exist_ok=True)
    return _report(rows, failed, options.output)


def _report(rows: list, failed: list[str], output: str) -> int:
    differences = [difference for *_, found in rows for difference in found]
    compared = sum(arrays for _, _, arrays, _ in rows)
    empty = [group for group, count, *_ in rows if not count]
    print(table(differences))
    if output and differences:
        write_csv(Path(output), differences)
        print(f"every array that differs: {output}")
    for line in failed:
        print(line)
    differing = {(one.group, one.case) for one in differences if not one.allowed}
    print(f"{sum(row[1] for row in rows)} cases, {compared} arrays: {len(differing)} cases differ", end="")
    print(f", {len(failed)} groups failed" if failed else "", f"; without a case: {', '.join(empty)}" if empty else "")
    return int(bool(differing or failed or not compared))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m scripts.compare_versions", description=__doc__.splitlines()[0])
    parser.add_argument("--before", default="HEAD", help="commit to compare this tree with (default: HEAD)")
    parser.add_argument("--only", default="", help="groups to run, separated by commas (default: all)")
    parser.add_argument("--cases", default="", help="regular expression of the names of the cases to run")
    parser.add_argument("--list", action="store_true", help="list the groups")
    parser.add_argument("--jobs", type=int, default=2, help="groups that run at a time (default: 2)")
    parser.add_argument("--fresh", action="store_true", help="run the older commit again, whatever the cache holds")
    parser.add_argument("--output", default="", help="CSV file for every array that differs")
    parser.add_argument("--logs", default="", help="folder for what this tree's groups printed and left")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

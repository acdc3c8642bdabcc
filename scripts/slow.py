"""Runs the groups of slow tests in turn, and writes down when each last passed.

    python -m scripts.slow                    all groups; those that never passed first, then the longest ago
    python -m scripts.slow training browser   these groups
    python -m scripts.slow --list             when each last passed

A group that passes is written to tests/slow_runs.json with the date, the commit, the processor and its time. A group of
which every test is skipped has not passed. What has passed before Ctrl-C stays written.
"""

import datetime
import json
import os
import re
import subprocess
import sys
import time

from scripts import command
from scripts.imports import ROOT
from serving.benchmark.report import environment
from tests.slow_groups import GROUPS
from tfrecords.base import files

RUNS = ROOT / "tests" / "slow_runs.json"


def main() -> int:
    """Returns the status of the command: 0 where every group passed."""
    parser = command.parser(__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--list", action="store_true", help="print when each group last passed, and run none")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.groups) - set(GROUPS)):
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    runs = json.loads(RUNS.read_text()) if RUNS.exists() else {}
    groups = arguments.groups or sorted(GROUPS, key=lambda group: runs.get(group, {}).get("passed", ""))
    if arguments.list:
        for group in groups:
            print(f"{group:12} {_sentence(runs.get(group))}")
        return 0
    failed = []
    for group in groups:
        print(f"== {group}: {_sentence(runs.get(group))}", flush=True)
        run = _run(group)
        if run is None:
            failed.append(group)
            continue
        runs = json.loads(RUNS.read_text()) if RUNS.exists() else {}
        files.write_json(RUNS, dict(sorted((runs | {group: run}).items())))
        print(f"== {group}: {_sentence(run)}", flush=True)
    if failed:
        print(f"not passed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


def _run(group: str) -> dict | None:
    """Returns what is written down of a group that passed, or None when it failed or no test of it ran."""
    start = time.monotonic()
    # All guides are cases of one file, and share no fixture that each worker would make anew.
    dist = "load" if group in ("docs", "served_docs") else "loadfile"
    command = [sys.executable, "-m", "pytest", "-n", os.environ.get("TEST_WORKERS", "2"), "--dist", dist]
    process = subprocess.Popen(
        [*command, "--no-loadscope-reorder", "-m", f"slow_{group}"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    last = ""
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line if line.strip() else last
    counts = {kind: int(count) for count, kind in re.findall(r"(\d+) (passed|skipped)", last)}
    if process.wait() or not counts.get("passed"):
        return None
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    return {
        "passed": datetime.date.today().isoformat(),
        "commit": commit,
        "processor": "{cpu}, {usable_cores} cores".format(**environment()),
        "seconds": round(time.monotonic() - start),
        "tests": counts["passed"],
        "skipped": counts.get("skipped", 0),
    }


def _sentence(run: dict | None) -> str:
    if run is None:
        return "never passed"
    return "passed {passed} at {commit}: {tests} tests, {skipped} skipped, {seconds} s, {processor}".format(**run)


if __name__ == "__main__":
    command.run(main)

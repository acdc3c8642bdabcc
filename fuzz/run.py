"""Fuzzes all targets in turn, or those named, and goes on from what earlier runs found.

    python -m fuzz.run --minutes=60                   all targets, six minutes each if there are ten
    python -m fuzz.run --minutes=10 rest gateway      these two

It needs `pip install -r requirements/fuzz.txt`. Corpora, faults and the minutes of every target in all are kept in
--folder. The status is 1 where a fault was found: FOLDER/TARGET/faults holds the input and the traceback of each.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEEDS = ROOT / "fuzz" / "seeds"
TARGETS = tuple(sorted(path.name for path in SEEDS.iterdir()))
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "albert-tf" / "fuzz"


def main() -> int:
    """Returns the status of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--minutes", type=float, default=10.0, help="in all (10)")
    parser.add_argument("--folder", type=Path, default=_CACHE, help="corpora and faults (%(default)s)")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.targets) - set(TARGETS)):
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    try:
        import atheris  # noqa: F401
    except ImportError:
        parser.error("atheris is not installed: pip install -r requirements/fuzz.txt")
    targets = arguments.targets or TARGETS
    found = 0
    for target in targets:
        found += fuzz(target, arguments.minutes * 60 / len(targets), arguments.folder / target)
    print(f"\n{'target':16} {'minutes':>8} {'in all':>8} {'inputs':>10} {'corpus':>7} {'features':>9} {'faults':>7}")
    for target in targets:
        print("{name:16} {minutes:8.1f} {in_all:8.1f} {inputs:10,} {corpus:7} {features:9} {faults:7}".format(
            name=target, **read_state(arguments.folder / target)))  # fmt: skip
    return 1 if found else 0


def fuzz(target: str, seconds: float, folder: Path) -> int:
    """Fuzzes a target for so long; writes its state and returns the number of faults that are there afterwards."""
    for name in ("corpus", "faults"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    before, begin = read_state(folder), time.monotonic()
    inputs, last = 0, ""
    # A process that ends early (a crash of native code, a hang, no memory) has left its input; another one goes on.
    while (left := seconds - (time.monotonic() - begin)) > 1 or not last:
        log = folder / "log"
        command = [sys.executable, "-m", "fuzz.one", target, str(max(int(left), 1))]
        with log.open("wb") as output:
            process = subprocess.run(
                [*command, folder / "corpus", folder / "faults"], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
            )
        text = log.read_text(errors="replace")
        inputs += sum(map(int, re.findall(r"stat::number_of_executed_units: +(\d+)", text)))
        last = text.strip().splitlines()[-1] if text.strip() else "it printed nothing"
        for line in re.findall(r"^fault: .*", text, re.MULTILINE):
            print(f"{target}: {line}", flush=True)
        if process.returncode < 0 and -process.returncode in (2, 15):
            raise KeyboardInterrupt
        if "INFO: seed corpus" not in text:
            raise SystemExit(f"{target} did not start, status {process.returncode}: {last}")
        if process.returncode and not inputs:
            raise SystemExit(f"{target} tried no input, status {process.returncode}: {last}")
        if process.returncode:
            print(f"{target}: the process ended with status {process.returncode}: {last}", flush=True)
    minutes = (time.monotonic() - begin) / 60
    features = re.findall(r"\bft: (\d+)", text)
    state = {
        "minutes": minutes, "in_all": before["in_all"] + minutes, "inputs": before["inputs"] + inputs,
        "corpus": len(list((folder / "corpus").iterdir())), "features": int(features[-1]) if features else 0,
        "faults": len([path for path in (folder / "faults").iterdir() if path.suffix != ".txt"]),
    }  # fmt: skip
    (folder / "state.json").write_text(json.dumps(state))
    print(f"{target}: {inputs:,} inputs in {minutes:.1f} minutes, {state['faults']} faults", flush=True)
    return state["faults"]


def read_state(folder: Path) -> dict:
    """Returns what is known of a target: minutes of the last run and in all, inputs in all, and the rest."""
    path = folder / "state.json"
    empty = {"minutes": 0.0, "in_all": 0.0, "inputs": 0, "corpus": 0, "features": 0, "faults": 0}
    return json.loads(path.read_text()) if path.exists() else empty


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

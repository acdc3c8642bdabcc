"""Writes requirements/locked: for each file of requirements all packages that it leads to, with versions and hashes.

python -m scripts.lock

Needs `uv` (requirements/audit.txt) and the package index. Install a locked file by
`pip install --require-hashes -r requirements/locked/requirements.txt`. A test checks that locked and readable files
have the same versions.
"""

import subprocess
import sys
from pathlib import Path

from scripts.imports import ROOT

LOCKED = ROOT / "requirements" / "locked"
# Environments of comparisons and of old versions, in which nothing is built or served.
NOT_LOCKED = ("browser", "clients", "folders", "lowest", "peers", "ray")


def readable_files() -> list[Path]:
    """Returns the files of requirements that are locked, the library's own first."""
    others = sorted((ROOT / "requirements").glob("*.txt"))
    return [ROOT / "requirements.txt", *(path for path in others if path.stem not in NOT_LOCKED)]


def main() -> None:
    """Writes all locked files."""
    LOCKED.mkdir(exist_ok=True)
    whole, test = LOCKED / "requirements.txt", ROOT / "requirements" / "test.txt"
    for path in readable_files():
        # One version of each package over all files: they are installed together.
        others = whole if path.stem != "requirements" else test
        print(f"locking {path.relative_to(ROOT)}")
        options = ["--quiet", "--generate-hashes", "--universal", "--python-version=3.11", "--no-header"]
        given, limits, written = (str(one.relative_to(ROOT)) for one in (path, others, LOCKED / path.name))
        command = ["uv", "pip", "compile", *options, "-c", limits, given, "-o", written]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            sys.exit(f"error: uv could not lock {given}")


if __name__ == "__main__":
    main()

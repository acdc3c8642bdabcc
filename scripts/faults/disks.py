"""Disks that are full or cannot be written."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from scripts.faults.rows import row
from scripts.faults.stage import Impossible, Stage, answers, check, ends_in_a_line, export, state_of, wait_for


@contextlib.contextmanager
def disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A disk of its own in memory; raises Impossible where this user may mount none."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False)
    if not mounted or mounted.returncode:
        raise Impossible("only a user who may mount a small disk can do this")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _fill(folder: Path) -> Path:
    """Fills a disk to its last byte; returns the file that does."""
    path = folder / "filling"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    return path


@row("disk-full-scoring", "scoring onto a disk of 200 kB", "one line, status not 0; with room the bytes of a whole job")
def disk_full_scoring(stage: Stage) -> str:
    small = stage.enter(disk(stage.folder / "small", 200))
    with stage.scoring(small / "scores") as server:
        said = ends_in_a_line(stage.score(server, small / "scores"))
        subprocess.run(["mount", "-o", "remount,size=20m", str(small)], check=True)
    return said


@row(
    "file-limit-scoring",
    "scoring where no file may be larger than 20 kB",
    "one line, status not 0; without the limit the bytes of a whole job",
)
def file_limit_scoring(stage: Stage) -> str:
    output = stage.folder / "limited"
    with stage.scoring(output) as server:
        return ends_in_a_line(stage.score(server, output, file_bytes=20_000))


@row("disk-full-servers", "access log and logs of server and gateway on a full disk", "all requests answered")
def disk_full_servers(stage: Stage) -> str:
    small = stage.enter(disk(stage.folder / "small", 100))
    base = stage.folder / "m"
    export(base, 1)
    logged = Stage(small, base)
    stage.enter(logged)
    server = logged.server(f"--access_log={small}/access.log")
    gateway = logged.gateway(server.target)
    filling = _fill(small)
    ports = server.ports | gateway.ports
    for number in range(20):
        check(answers(ports), f"round {number} is not answered")
    # What happens now is logged, too.
    export(base, 2)
    wait_for(lambda: state_of(server, 2) == "AVAILABLE", "a new version is loaded")
    filling.unlink()
    check(answers(ports), "no answer once there is room")
    for process in (gateway, server):
        check((status := process.end(signal.SIGTERM)) == 0, f"status {status}")
    return "60 requests and a new version"


@row(
    "read-only-disk",
    "models on a read-only disk, and scoring onto it",
    "served; scoring ends in one line, status not 0",
)
def read_only_disk(stage: Stage) -> str:
    fixed = stage.enter(disk(stage.folder / "fixed", 10_000))
    export(fixed / "m", 1)
    subprocess.run(["mount", "-o", "remount,ro", str(fixed)], check=True)
    server = stage.server(base=fixed / "m")
    check(answers(server.ports), "no answer")
    return ends_in_a_line(stage.score(server, fixed / "scores"))

"""Disks that are full or cannot be written."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from scripts.faults.rows import row
from scripts.faults.stage import Impossible, Stage, answers, check, export, wait_for


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
    server = stage.server()
    whole = stage.scored(server, stage.folder / "whole")
    small = stage.enter(disk(stage.folder / "small", 200))
    output = small / "scores"
    process = stage.score(server, output)
    status, said = process.wait(), process.last_line
    check(status != 0 and "Traceback" not in process.log.read_text(), f"status {status}: {said}")
    subprocess.run(["mount", "-o", "remount,size=20m", str(small)], check=True)
    check(stage.scored(server, output) == whole, "the table differs")
    return f"status {status}: {said[:100]}"


@row(
    "file-limit-scoring",
    "scoring where no file may be larger than 20 kB",
    "one line, status not 0; without the limit the bytes of a whole job",
)
def file_limit_scoring(stage: Stage) -> str:
    server = stage.server()
    whole = stage.scored(server, stage.folder / "whole")
    output = stage.folder / "limited"
    process = stage.score(server, output, file_bytes=20_000)
    status, said = process.wait(), process.last_line
    check(status != 0 and "Traceback" not in process.log.read_text(), f"status {status}: {said}")
    check(stage.scored(server, output) == whole, "the table differs")
    return f"status {status}: {said[:100]}"


@row("disk-full-servers", "access log and logs of server and gateway on a full disk", "all requests answered")
def disk_full_servers(stage: Stage) -> str:
    small = stage.enter(disk(stage.folder / "small", 100))
    base = stage.folder / "m"
    export(base, 1)
    logged = Stage(small, base)
    stage.enter(logged)
    server = logged.server(f"--access_log={small}/access.log")
    gateway = logged.gateway(f"127.0.0.1:{server.port}")
    filling = _fill(small)
    ports = {"port": server.port, "rest": server.rest, "http": gateway.http}
    for number in range(20):
        check(answers(**ports), f"round {number} is not answered")
    # What happens now is logged, too.
    export(base, 2)
    wait_for(lambda: _is_loaded(server, 2), "a new version is loaded")
    filling.unlink()
    check(answers(**ports), "no answer once there is room")
    for process in (gateway, server):
        check((status := process.end(signal.SIGTERM)) == 0, f"status {status}")
    return "60 requests and a new version"


def _is_loaded(server, version: int) -> bool:
    from serving.client import Client

    with Client(f"127.0.0.1:{server.port}", "m", timeout_s=10) as client:
        return any(one.version == version and one.state == "AVAILABLE" for one in client.status())


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
    check(answers(port=server.port, rest=server.rest), "no answer")
    process = stage.score(server, fixed / "scores")
    status, said = process.wait(), process.last_line
    check(status != 0 and "Traceback" not in process.log.read_text(), f"status {status}: {said}")
    return f"status {status}: {said[:100]}"

"""Disks that are full or cannot be written."""

import contextlib
import os
import signal
import subprocess

import pytest

from tests.faults.stage import Stage, answers, check_ends_in_a_line, export, state_of, wait_for

pytestmark = [pytest.mark.slow("faults"), pytest.mark.timeout(900)]


@contextlib.contextmanager
def disk(folder, kilobytes):
    """A disk of its own in memory; skips the test where this user may mount none."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False)
    if not mounted or mounted.returncode:
        pytest.skip("only a user who may mount a small disk can do this")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def _fill(folder):
    """Fills a disk to its last byte; returns the file that does."""
    path = folder / "filling"
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    return path


def test_scoring_that_fills_the_disk_ends_in_one_line_and_goes_on_with_room(stage):
    small = stage.enter(disk(stage.folder / "small", 200))
    with stage.scoring(small / "scores") as server:
        check_ends_in_a_line(stage.score(server, small / "scores"))
        subprocess.run(["mount", "-o", "remount,size=20m", str(small)], check=True)


def test_scoring_that_meets_a_limit_of_file_sizes_ends_in_one_line_and_goes_on_without(stage):
    output = stage.folder / "limited"
    with stage.scoring(output) as server:
        check_ends_in_a_line(stage.score(server, output, file_bytes=20_000))


def test_servers_answer_while_their_logs_fill_the_disk(stage):
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
        assert answers(ports), f"round {number} is not answered"
    # What happens now is logged, too.
    export(base, 2)
    wait_for(lambda: state_of(server, 2) == "AVAILABLE", "a new version is loaded")
    filling.unlink()
    assert answers(ports), "no answer once there is room"
    for process in (gateway, server):
        assert (status := process.end(signal.SIGTERM)) == 0, f"status {status}"


def test_models_on_a_read_only_disk_are_served_and_scoring_onto_it_ends_in_one_line(stage):
    fixed = stage.enter(disk(stage.folder / "fixed", 10_000))
    export(fixed / "m", 1)
    subprocess.run(["mount", "-o", "remount,ro", str(fixed)], check=True)
    server = stage.server(base=fixed / "m")
    assert answers(server.ports), "no answer"
    check_ends_in_a_line(stage.score(server, fixed / "scores"))

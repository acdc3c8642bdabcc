"""What befalls the machine ends a command in a line; a bug of ours keeps its traceback."""

import errno
import re
import signal
import subprocess
import sys

import pytest

from tfrecords.base import script


@pytest.fixture
def run(monkeypatch):
    """Runs a command that ends with an error."""

    def run(error):
        def fail(*arguments, **options):
            raise error

        monkeypatch.setattr(script.app, "run", fail)
        # Ctrl-C stays that of pytest.
        monkeypatch.setattr(script, "insist_when_interrupted", lambda: None)
        script.run_main(lambda: None)

    return run


class ResourceExhaustedError(Exception):
    """Named as TensorFlow's."""


class UnavailableError(Exception):
    """Named as TensorFlow's."""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "run/last"),
            "the disk is full, .* at 'run/last'",
        ),
        (OSError("Can't write data (error message = 'No space left on device')"), "the disk is full"),
        (ResourceExhaustedError("x.tfrecord; No space left on device"), "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "make room, then give the same command again"),
        (UnavailableError("Collective ops is aborted by: connection refused"), "another process of this run is gone"),
    ],
)
def test_it_is_one_line(run, capsys, error, line):
    with pytest.raises(SystemExit) as ended:
        run(error)
    said = capsys.readouterr().err
    assert ended.value.code == 1 and re.match(f"error: .*{line}", said) and said.count("\n") == 1


def test_anything_else_keeps_its_traceback(run):
    with pytest.raises(OSError, match="Input/output"):
        run(OSError(errno.EIO, "Input/output error"))


def test_a_swallowed_ctrl_c_comes_again_and_what_is_cleaned_up_is_not_cut_off(tmp_path):
    lines = f"""
import signal, time
from tfrecords.base.script import run_main
def main():
    try:
        print("up", flush=True)
        time.sleep(60)
    except BaseException:
        pass
    try:
        time.sleep(60)
    finally:
        time.sleep(1.5)
        open({str(tmp_path / "cleaned")!r}, "w").close()
signal.signal(signal.SIGINT, signal.default_int_handler)
run_main(main)
"""
    command = [sys.executable, "-c", lines]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    assert (process.communicate(timeout=30)[1], process.returncode) == ("interrupted\n", 130)
    assert (tmp_path / "cleaned").exists()

"""What befalls the machine ends a command in a line; a bug of ours keeps its traceback."""

import errno
import re
import signal
import subprocess
import sys
import textwrap

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


class DataLossError(Exception):
    """Named as TensorFlow's."""


class UnavailableError(Exception):
    """Named as TensorFlow's."""


@pytest.mark.parametrize(
    "error, line",
    [
        (OSError(errno.ENOSPC, "No space left on device", "run/last"), "the disk is full, .* at 'run/last'"),
        (OSError("Can't write data (error message = 'No space left on device')"), "the disk is full"),
        (ResourceExhaustedError("x.tfrecord; No space left on device"), "the disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "make room, then give the same command again"),
        (DataLossError("corrupted record at 3"), "a record file is damaged; python -m tfrecords.inspect_examples"),
        (UnicodeDecodeError("utf-8", b"Could not parse example input, value: '\xc2'", 40, 41, "x"), "a record file is"),
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


def interrupted(main):
    """What a command says on stderr, and its status, after a Ctrl-C that its `main` meets."""
    start = "import signal, time\nfrom tfrecords.base.script import run_main\ndef main():\n"
    end = "\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nrun_main(main)"
    ended = subprocess.run(
        [sys.executable, "-c", start + textwrap.indent(main, "    ") + end], capture_output=True, text=True, timeout=60
    )
    return ended.stderr, ended.returncode


# The first is numba's: Python itself sets both for a compiled function that returns with an error set.
@pytest.mark.parametrize("after", ["raise SystemError from error", "raise OSError", "raise OSError from None"])
def test_an_error_that_came_of_a_ctrl_c_is_one(after):
    lines = f"try:\n    signal.raise_signal(signal.SIGINT)\nexcept KeyboardInterrupt as error:\n    {after}"
    assert interrupted(lines) == ("interrupted\n", 130)


def test_a_ctrl_c_while_an_object_is_destroyed_is_one():
    lines = """
class Destroyed:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
Destroyed()
time.sleep(30)"""
    assert interrupted(lines) == ("interrupted\n", 130)


@pytest.mark.parametrize("end, status", [("", 0), ("raise ValueError", 1)])
def test_no_alarm_goes_off_after_a_swallowed_ctrl_c(end, status):
    # Python's own end, in which an alarm kills, is the last to destroy what hangs on a module.
    lines = f"""
class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(1.5)
time.slow = Slow()
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    pass
{end}"""
    said, ended = interrupted(lines)
    assert ended == status and said.endswith("ValueError\n" if end else "")


def test_the_next_export_is_named_after_the_models_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for model, name in (("run", "run"), ("a/base.keras", "base"), (".", tmp_path.name)):
        script.say_export(model, "--check")
        command = f"next: python -m serving.export --model={model} --output_dir=models/{name} --check\n"
        assert capsys.readouterr().err == command


_LEAVES_A_CYCLE = """
from tfrecords.base.script import run_main

class Cycle:
    def __init__(self):
        self.self = self

    def __del__(self):
        print("collected")

def main():
    Cycle()
    print("done")

run_main(main)
"""


def test_a_command_ends_without_a_last_collection():
    """With TensorFlow's objects it would take more than a second."""
    ended = subprocess.run([sys.executable, "-c", _LEAVES_A_CYCLE], capture_output=True, text=True)
    assert (ended.stdout, ended.returncode) == ("done\n", 0)

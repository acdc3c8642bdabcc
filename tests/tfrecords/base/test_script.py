"""What befalls the machine ends a command in a line; a bug of ours keeps its traceback."""

import errno
import re

import pytest

from tfrecords.base import script


@pytest.fixture
def run(monkeypatch):
    """Runs a command that ends with an error."""

    def run(error):
        def fail(*arguments, **options):
            raise error

        monkeypatch.setattr(script.app, "run", fail)
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

"""What is refused: errors of ours, and tables of flags as a user gives them, " => ", and a pattern of the error."""

import contextlib
import dataclasses
import shlex
from pathlib import Path

import pytest
from absl import flags

from tfrecords.base.errors import UserError
from tfrecords.base.settings import define_flags, flag_name, read_flags, settings_of


@contextlib.contextmanager
def refused(match):
    """Asserts that the block ends with an error of ours: one line, in which the pattern is found."""
    with pytest.raises(UserError, match=match) as caught:
        yield caught
    assert "\n" not in str(caught.value)


def table_of(file):
    """Returns the lines of the table beside a test file, test_NAME.py and NAME.txt, without comments."""
    path = Path(file).with_name(Path(file).stem.removeprefix("test_") + ".txt")
    return [line for line in path.read_text("utf-8").splitlines() if line[0] != "#"]


def _flags(kind, arguments):
    values = flags.FlagValues()
    define_flags(kind, values)
    assert values(["command", *arguments]) == ["command"]
    return values


def parsed(kind, arguments):
    """Returns the settings of a kind that the arguments of a command give."""
    return read_flags(kind, _flags(kind, arguments))


def changed(settings, line):
    """Returns settings as the flags of a line change them."""
    values = _flags(type(settings), shlex.split(line))
    given = {field.name: values[flag_name(field)] for field in settings_of(type(settings))}
    said = {name: flag.value for name, flag in given.items() if flag.present}
    return dataclasses.replace(
        settings, **{name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    )


def lines(table):
    return table.strip().splitlines()


def assert_refused(line, settings, run):
    """Asserts that `run` of settings changed by the line's flags ends with its sentence."""
    given, _, said = line.partition("=> ")
    with refused(said):
        run(changed(settings, given))

"""Flags that the commands of the serving kit refuse, each in one line: the table is refusals.txt."""

import importlib
import re
import socket

import pytest

from tests.refusals import parsed, refused, table_of

LINES = table_of(__file__)
OWN_SETTINGS = "(?!Checked|Connection|ModelSettings).+Settings"
FIRST = {line.split()[0]: line for line in reversed(LINES)}


@pytest.fixture
def filled_in(tmp_path):
    """filled_in(line): the words of a command, and what it says."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = {"TAKEN": str(taken.getsockname()[1]), "FOLDER": str(tmp_path)}

        def fill_in(line):
            for name, value in names.items():
                line = line.replace(name, value)
            command, sentence = line.split(" | ")
            return command.split(), sentence

        yield fill_in


@pytest.mark.parametrize("line", LINES)
def test_what_cannot_be_is_said(filled_in, line):
    (module, *arguments), sentence = filled_in(line)
    command = importlib.import_module(f"{module}.__main__")
    (settings,) = {one for name, one in vars(command).items() if re.fullmatch(OWN_SETTINGS, name)}
    with refused(re.escape(sentence)):
        command.main(parsed(settings, arguments))


@pytest.mark.parametrize("line", FIRST.values(), ids=FIRST)
def test_a_command_ends_in_one_line_without_tensorflow(run_module, filled_in, line):
    command, sentence = filled_in(line)
    ended = run_module(*command, without_tensorflow=True)
    assert ended.returncode == 1 and ended.stdout == "" and ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("error: ") and sentence in ended.stderr

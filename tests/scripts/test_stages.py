"""Stages run once, and again exactly when their command, an input or a stage before them changed."""

import contextlib
import subprocess
import sys

import pytest

from scripts import stages
from scripts.stages import Road, shell_line
from tfrecords.base.errors import UserError


def append(path, word, then="pass"):
    """A command that adds a word to a file, so that runs can be counted."""
    return [sys.executable, "-c", f"open({str(path)!r}, 'a').write({word!r}); {then}"]


def walk(folder, first_word="a", mixed="input"):
    road = Road(folder)
    road.mix(mixed)
    road.stage("first", folder / "one", append(folder / "one", first_word))
    road.stage("second", folder / "two", append(folder / "two", "b"))
    return (folder / "one").read_text(), (folder / "two").read_text()


def test_second_walk_runs_nothing(tmp_path, capsys):
    assert walk(tmp_path) == ("a", "b")
    capsys.readouterr()
    assert walk(tmp_path) == ("a", "b")
    assert capsys.readouterr().out.count("kept from before") == 2


@pytest.mark.parametrize("changed", [{"first_word": "A"}, {"mixed": "other input"}])
def test_a_changed_command_or_input_reruns_its_stage_and_all_after_it(tmp_path, changed):
    walk(tmp_path)
    for name in ("one", "two"):
        (tmp_path / name).write_text("stale")
    assert walk(tmp_path, **changed) == (changed.get("first_word", "a"), "b")


def test_a_removed_output_is_made_again_and_all_after_it(tmp_path):
    walk(tmp_path)
    (tmp_path / "one").unlink()
    (tmp_path / "two").write_text("of what is gone")
    assert walk(tmp_path) == ("a", "b")


@pytest.mark.parametrize(("resumes", "expected"), [(False, "x"), (True, "xx")])
def test_a_failed_stage_is_not_trusted(tmp_path, resumes, expected):
    """What it left behind is removed, unless the stage says that it goes on from it."""
    output = tmp_path / "output"
    command = append(output, "x", then=f"import os, sys; sys.exit(3 if os.path.getsize({str(output)!r}) < 2 else 0)")
    with pytest.raises(subprocess.CalledProcessError) as failure:
        Road(tmp_path).stage("fails", output, command, resumes)
    assert failure.value.returncode == 3
    with contextlib.nullcontext() if resumes else pytest.raises(subprocess.CalledProcessError):
        Road(tmp_path).stage("goes on or fails again", output, command, resumes)
    assert output.read_text() == expected


def test_what_another_command_began_is_not_resumed(tmp_path):
    output = tmp_path / "output"
    Road(tmp_path).stage("first", output, append(output, "of another command"))
    Road(tmp_path).stage("resumes", output, append(output, "x"), resumes=True)
    assert output.read_text() == "x"


def test_files_of_the_user_are_never_removed(tmp_path):
    output = tmp_path / "data"
    output.mkdir()
    (output / "mine.txt").write_text("precious")
    with pytest.raises(UserError, match="is not of an earlier run; choose another --output_dir"):
        Road(tmp_path).stage("builds", output, append(output / "x", "x"))
    assert (output / "mine.txt").read_text() == "precious"


def test_an_output_half_removed_is_not_kept(tmp_path, monkeypatch):
    """Another command was stopped while it removed what the first had made."""
    walk(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(stages, "_remove", lambda path: (_ for _ in ()).throw(KeyboardInterrupt))
        walk(tmp_path, first_word="A")
    (tmp_path / "one").write_text("half")
    assert walk(tmp_path) == ("a", "b")


def test_printed_commands_can_be_pasted():
    line = shell_line([sys.executable, "-m", "x", "--a=data/*.tfrecord"])
    assert line == ".venv/bin/python -m x '--a=data/*.tfrecord'"

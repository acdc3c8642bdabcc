"""Folders that are there for a trial only."""

import os
import threading

import pytest

from tests.refusals import refused
from tfrecords.base import files
from tfrecords.base.files import trial_folder


def test_a_file_is_on_the_disk_before_it_takes_its_name_and_its_name_afterwards(tmp_path, monkeypatch):
    done, replace = [], os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    monkeypatch.setattr(os, "replace", lambda source, target: (done.append("replace"), replace(source, target)))
    files.write_json(tmp_path / "a.json", 1)
    written, replaced, named = done
    assert ".partial" in written and replaced == "replace" and named == str(tmp_path)


def test_a_lock_is_left_behind_by_nobody(tmp_path):
    with files.locked(tmp_path), refused("another process"), files.locked(tmp_path):
        pass
    with pytest.raises(RuntimeError), files.locked(tmp_path):
        raise RuntimeError
    with files.locked(tmp_path):
        assert not list(tmp_path.iterdir())


def test_a_lock_is_waited_for(tmp_path):
    entered = []

    def enter():
        with files.locked(tmp_path, wait=True):
            entered.append(True)

    with files.locked(tmp_path):
        other = threading.Thread(target=enter)
        other.start()
        other.join(0.2)
        assert not entered
    other.join(10)
    assert entered


def test_a_trial_removes_all_that_was_made_for_it(tmp_path):
    with pytest.raises(RuntimeError), trial_folder(tmp_path / "a" / "b", "trial") as folder:
        assert folder == tmp_path / "a" / "b" / "trial" and folder.is_dir()
        (folder / "model").mkdir()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_trial_removes_nothing_else(tmp_path):
    with trial_folder(tmp_path / "a" / "b", "trial"):
        (tmp_path / "a" / "mine.txt").touch()
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "a", tmp_path / "a" / "mine.txt"]


def test_a_trial_where_nothing_can_be_written_leaves_nothing(tmp_path):
    (tmp_path / "a").touch()
    for folder in (tmp_path / "a", "/proc/nowhere"):
        with refused(f"cannot write to output folder '{folder}'"), trial_folder(folder, "trial"):
            pass
    assert (tmp_path / "a").is_file()

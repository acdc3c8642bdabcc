"""Parts of tables: on the disk before they count as done, and made anew if they are damaged."""

import functools
import json
import os
import re
from pathlib import Path

import pytest

from serving.score import job, rows
from serving.score.worker import ScoringWorker
from tests.refusals import refused
from tests.serving.score.conftest import Echo, read_lines
from tfrecords.base.parts import Parts


@pytest.fixture
def score(echo, tmp_path, monkeypatch):
    """score(**options): the manifest of rows in five pieces, of which every fifth is bad."""
    monkeypatch.setattr(job, "PIECE_BYTES", 100)
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"text" if n % 5 else "txt": str(n)}) + "\n" for n in range(30)))
    return functools.partial(job.score, str(path), tmp_path / "out", echo)


@pytest.fixture
def stopped(score, tmp_path, monkeypatch):
    """Gives a job that was stopped when all parts were there, and the folder they are in."""

    def start(**options):
        with monkeypatch.context() as patch:
            patch.setattr(job, "_publish", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                score(**options)
        return tmp_path / "out" / ".parts"

    return start


@pytest.mark.parametrize("damage", ["report", "answers", "parquet"])
def test_parts_that_are_whole_are_kept_and_others_are_made_anew(score, stopped, tmp_path, capsys, damage):
    options = {"format": "parquet"} if damage == "parquet" else {}
    if options:
        pytest.importorskip("pyarrow")
    parts = stopped(**options)
    reports = sorted(parts.glob("0*.json"))
    assert len(reports) > 3
    if damage == "report":
        reports[1].write_text("{}")
    else:
        reports[1].with_suffix(f".{options.get('format', 'jsonl')}").write_bytes(b"")
    manifest = score(**options)
    assert (manifest["rows"], manifest["bad_rows"]) == (30, 6)
    assert 0 < int(re.search(r"; (\d+) rows in", capsys.readouterr().out)[1]) < 15
    bad = read_lines(tmp_path / "out" / "bad_rows.jsonl")
    assert [(one["line"], one["row"]) for one in bad] == [(n + 1, f'{{"txt": "{n}"}}') for n in range(0, 30, 5)]
    if not options:
        rows = read_lines(tmp_path / "out" / "in.jsonl")
        assert [row.get("label") for row in rows] == [str(n) if n % 5 else None for n in range(30)]


def test_a_part_is_on_the_disk_before_its_report(echo, tmp_path, monkeypatch):
    """What is renamed without a sync may be empty after a power cut."""
    events, replace = [], os.replace
    synced = lambda descriptor: events.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).suffix)  # noqa: E731
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda old, new: (events.append(f"renamed {new.suffix}"), replace(old, new)))
    (tmp_path / ".parts").mkdir()
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{}\n')
    (piece,) = rows.cut([tmp_path / "in.jsonl"], 10_000)
    ScoringWorker(echo, parts=Parts(tmp_path)).score("0", piece, ("text",), Echo.outputs)
    assert events == [".jsonl", "renamed .jsonl", "", "renamed .json"]


@pytest.mark.parametrize("rest", [0, 2000])
def test_a_wrong_field_is_said_before_the_work(echo, tmp_path, rest):
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "in.jsonl").write_text('{"passages": "a"}\n' * 200 + '{"text": "late"}\n' * rest)
    with refused(r"none of the first rows of '.*in.jsonl'.*: the field 'text' is missing; see"):
        job.score(f"{tmp_path}/*.jsonl", tmp_path / "out", echo)
    assert not (tmp_path / "out" / ".parts").exists()
    manifest = job.score(f"{tmp_path}/in.jsonl", tmp_path / "out", echo, fields=("passages",))
    assert manifest["bad_rows"] == rest

"""Parts of tables: on the disk before they count as done, looked at when they are joined, bad rows among them."""

import functools
import json
import os
from pathlib import Path

import pytest

from serving.score import job, rows
from serving.score.worker import ScoringWorker
from tests.serving.score.conftest import Echo, read_lines
from tfrecords.base.errors import UserError


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
            patch.setattr(job, "_assemble", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                score(**options)
        return tmp_path / "out" / ".parts"

    return start


def test_reports_hold_counts_and_bad_rows_are_listed_from_parts(score, stopped, tmp_path):
    reports = [json.loads(path.read_text()) for path in stopped().glob("0*.json")]
    assert len(reports) > 3 and sum(report["bad"] for report in reports) == 6
    assert sum(report["rows"] for report in reports) == 30
    manifest = score()
    assert (manifest["rows"], manifest["bad_rows"]) == (30, 6)
    bad = read_lines(tmp_path / "out" / "bad_rows.jsonl")
    assert [(one["line"], one["row"]) for one in bad] == [(n + 1, f'{{"txt": "{n}"}}') for n in range(0, 30, 5)]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": "5", "bad": 1}'])
def test_a_report_that_lost_its_text_is_no_report(score, stopped, tmp_path, text):
    (stopped() / "000001.json").write_text(text)
    score()
    assert [row.get("label") for row in read_lines(tmp_path / "out" / "in.jsonl")][:3] == [None, "1", "2"]


@pytest.mark.parametrize("suffix", [".jsonl", ".bad", ".parquet"])
def test_a_part_that_lost_rows_is_made_anew(score, stopped, tmp_path, suffix):
    options = {"format": "parquet"} if suffix == ".parquet" else {}
    if options:
        pytest.importorskip("pyarrow")
    (stopped(**options) / f"000001{suffix}").write_bytes(b"")
    with pytest.raises(UserError, match=r"1 parts in .* are damaged; run the same command again"):
        score(**options)
    assert not (tmp_path / "out" / "manifest.json").exists()
    manifest = score(**options)
    assert (manifest["rows"], manifest["bad_rows"]) == (30, 6)


def test_a_part_is_on_the_disk_before_its_report(echo, tmp_path, monkeypatch):
    """What is renamed without a sync may be empty after a power cut."""
    events, sync, replace = [], os.fsync, os.replace

    def synced(descriptor):
        events.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).suffix)
        sync(descriptor)

    def replaced(old, new):
        events.append(f"renamed {new.suffix}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    parts = tmp_path / "parts"
    parts.mkdir()
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n{}\n')
    (piece,) = rows.cut([tmp_path / "in.jsonl"], 10_000)
    ScoringWorker(echo, (), (), (), "jsonl", 2048, parts).score(0, piece, ("text",), Echo.outputs)
    assert events == [".jsonl", "renamed .jsonl", "", ".bad", "renamed .bad", "", "renamed .json"]


@pytest.mark.parametrize("rest", [0, 2000])
def test_a_wrong_field_is_said_before_the_work(echo, tmp_path, rest):
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "in.jsonl").write_text('{"sentence": "a"}\n' * 200 + '{"text": "late"}\n' * rest)
    with pytest.raises(UserError, match=r"none of the first rows of '.*in.jsonl'.*: the field 'text' is missing; see"):
        job.score(f"{tmp_path}/*.jsonl", tmp_path / "out", echo)
    assert not (tmp_path / "out" / ".parts").exists()
    manifest = job.score(f"{tmp_path}/in.jsonl", tmp_path / "out", echo, fields=("sentence",))
    assert manifest["bad_rows"] == rest

"""What files begin with, and which are no rows."""

import gzip
import json

import pytest

from serving.score import job, rows
from tests.refusals import refused
from tests.serving.score.conftest import read_lines, read_rows


@pytest.mark.parametrize("name, line", [("in.jsonl", '{"text": "%s"}'), ("in.txt", "%s")])
@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_a_byte_order_mark_is_passed_over(tmp_path, name, line, size):
    path = tmp_path / name
    path.write_text("".join(f"{line % text}\n" for text in ("first", "second\ufeff")), "utf-8-sig")
    assert [row.texts for row in read_rows(path, size)] == [(b"first",), ("second\ufeff".encode(),)]


@pytest.mark.parametrize("name", ["table.xlsx", "TABLE.ORC", "table.feather"])
def test_other_tables_are_refused(tmp_path, name):
    (tmp_path / name).write_text("id,text\n")
    with refused(rf"{name}' is a table, .* make JSON lines of it"):
        rows.find_files(f"{tmp_path}/*")


def test_json_is_read_as_training_reads_it(tmp_path):
    """NaN as Python writes it, and half a surrogate; what is no object stays an error."""
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a\\ud83d", "id": 1}\n{"text": "b", "id": NaN}\n[NaN]\n')
    first, second, third = read_rows(path, 99, ["id"])
    assert (first.texts, first.kept) == (("a\ufffd".encode(),), {"id": 1})
    assert second.texts == (b"b",) and second.kept["id"] != second.kept["id"]
    assert third.error.startswith("not a JSON object")


TABLES = {
    "a.csv": '\ufeffid;Review\n7;"one\ntwo; ""three"""\n\n8;four\n'.encode(),
    "a.tsv": "id\tReview\n7\tone\\ntwo\n8\tfour\n".replace("one\\ntwo", '"one\ntwo; ""three"""').encode("utf-16"),
    "a.csv.gz": gzip.compress(b'id,Review\n7,"one\ntwo; ""three"""\n8,four\n'),
    "a.jsonl": b'{"id": "7", "Review": "one\\ntwo; \\"three\\""}\n{"id": "8", "Review": "four"}\n',
    "a.jsonl.gz": gzip.compress(b'{"id": "7", "Review": "one\\ntwo; \\"three\\""}\n{"id": "8", "Review": "four"}\n'),
    "a.parquet": None,
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("size", [7, 2**19])
def test_tables_are_read_as_training_reads_them(echo, tmp_path, monkeypatch, name, size):
    """A column that is called so is the text, others are kept, and rows are answered in order."""
    monkeypatch.setattr(job, "PIECE_BYTES", size)
    if TABLES[name] is None:
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table({"id": ["7", "8"], "Review": ['one\ntwo; "three"', "four"]})
        pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / name)
    else:
        (tmp_path / name).write_bytes(TABLES[name])
    manifest = job.score(str(tmp_path / name), tmp_path / "out", echo, keep=("id",))
    assert (manifest["rows"], manifest["bad_rows"]) == (2, 0)
    (answers,) = (tmp_path / "out").glob("a*.jsonl")
    assert read_lines(answers) == [{"id": "7", "label": 'one\ntwo; "three"'}, {"id": "8", "label": "four"}]
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path != answers) == [
        "bad_rows.jsonl", "manifest.json"
    ]  # fmt: skip


def test_a_broken_table_is_refused_with_all_its_rows_and_nothing_is_left(echo, tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,a\n2\n3,b,c\n")
    with refused(r"a.csv' line 3: 1 columns, expected 2 \(id, text\); .*also line 4: 3 col"):
        job.score(str(tmp_path / "a.csv"), tmp_path / "out", echo)
    (tmp_path / "a.csv").write_text("id,review,comment\n1,a,b\n")
    with refused(r"'review' and 'comment' may each be the text; .* give --fields="):
        job.score(str(tmp_path / "a.csv"), tmp_path / "out", echo)
    with refused("the field 'words' is missing; see --fields"):
        job.score(str(tmp_path / "a.csv"), tmp_path / "out", echo, fields=("words",))
    assert list((tmp_path / "out").iterdir()) == []
    job.score(str(tmp_path / "a.csv"), tmp_path / "out", echo, fields=("comment",), keep=("review",))
    assert read_lines(tmp_path / "out" / "a.jsonl") == [{"review": "a", "label": "b"}]


def test_columns_that_lack_a_text_are_bad_rows(echo, tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"review": "a"}) + "\n" + json.dumps({"review": 5}) + "\n")
    manifest = job.score(str(tmp_path / "a.jsonl"), tmp_path / "out", echo)
    assert manifest["bad_rows"] == 1

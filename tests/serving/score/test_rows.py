"""What files begin with, and which are no rows."""

import pytest

from serving.score import rows
from tfrecords.base.errors import UserError


@pytest.mark.parametrize(("name", "line"), [("in.jsonl", '{"text": "%s"}'), ("in.txt", "%s")])
@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_a_byte_order_mark_is_passed_over(tmp_path, name, line, size):
    path = tmp_path / name
    path.write_text("".join(f"{line % text}\n" for text in ("first", "second\ufeff")), "utf-8-sig")
    found = [row for piece in rows.cut([path], size) for row in rows.read(piece, ["text"])]
    assert [row.texts for row in found] == [(b"first",), ("second\ufeff".encode(),)]


@pytest.mark.parametrize("name", ["table.csv", "table.tsv", "TABLE.CSV", "table.parquet"])
def test_tables_are_refused(tmp_path, name):
    (tmp_path / name).write_text("id,text\n")
    with pytest.raises(UserError, match=rf"{name}' is a table, .* make JSON lines of it"):
        rows.find_files(f"{tmp_path}/*")


def test_json_is_read_as_training_reads_it(tmp_path):
    """NaN as Python writes it, and half a surrogate; what is no object stays an error."""
    path = tmp_path / "in.jsonl"
    path.write_text('{"text": "a\\ud83d", "id": 1}\n{"text": "b", "id": NaN}\n[NaN]\n')
    first, second, third = (row for piece in rows.cut([path], 99) for row in rows.read(piece, ["text"], ["id"]))
    assert (first.texts, first.kept) == (("a\ufffd".encode(),), {"id": 1})
    assert second.texts == (b"b",) and second.kept["id"] != second.kept["id"]
    assert third.error.startswith("not a JSON object")

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

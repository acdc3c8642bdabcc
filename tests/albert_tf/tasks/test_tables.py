"""Tables as they are published and as users write them, and what is wrong with them."""

import csv
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import lines, refused
from tfrecords.base.tables import read_table, write_table


def values(table):
    return [list(row.values.values()) for row in table.rows]


def test_a_tsv_keeps_quotes_and_odd_separators(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes('\ufeffx\ty\n"one\t" t\u2028w\u0085o "\r\n\nthree\tfo\rur\n'.encode())
    table = read_table(path)
    assert table.columns == ("x", "y")
    found = [(row.line, *row.values.values()) for row in table.rows]
    assert found == [(2, '"one', '" t\u2028w\u0085o "'), (4, "three", "fo\rur")]


@given(st.lists(st.lists(st.text(alphabet=st.characters(blacklist_categories=["Cs"])), min_size=2, max_size=2)))
def test_csv_cells_come_back_as_they_were(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["a", "b"], ["first", "row"], *rows])
    assert values(read_table(path)) == [["first", "row"], *rows]


def test_lines_of_a_csv_with_line_feeds_in_cells_and_of_json(tmp_path):
    for name, content, wanted in (
        ("a.csv", 'a,b\n"one\ntwo",3\nx,y\n', [(2, "one\ntwo"), (4, "x")]),
        ("a.jsonl", '{"a": 1, "b": ["x"]}\n\n{"b": [], "a": "2", "c": 0}\n', [(1, 1), (3, "2")]),
    ):
        (tmp_path / name).write_text(content)
        table = read_table(tmp_path / name)
        assert table.columns == ("a", "b") and [(row.line, row.values["a"]) for row in table.rows] == wanted


def test_half_characters_of_json_are_replaced_everywhere(tmp_path):
    """No tokenizer takes them; whole pairs of them are characters."""
    line = r'{"a": "x\ud800", "b": ["\udc00y", "\ud83d\ude00", {"c": "\ud800"}, 1, null]}'
    (tmp_path / "a.jsonl").write_text(line)
    (found,) = values(read_table(tmp_path / "a.jsonl"))
    assert found == ["x\ufffd", ["\ufffdy", "\U0001f600", {"c": "\ufffd"}, 1, None]]


# A file's name and, as a Python string, what it holds.
WRONG = r"""
tsv :: => holds no rows
tsv :: x\ty\n => holds no rows
tsv :: x\ty\n1\t2\n3\n => line 3: 1 columns, expected 2 \(x, y\)
tsv :: x\tx\n1\t2\n => line 1: a column is there twice
tsv :: x\ty\n1\t\xff\n => line 2: not UTF-8
csv :: x,y\n1,"2\n => line 2: not CSV
csv :: x,y\r1,2\r3,4\r => line 1: a carriage return \(CR\) stands alone; make line ends LF
csv :: x,y\n1,2\n3\r4,5\n => line 3: a carriage return \(CR\) stands alone.*take it out of the cell
tsv :: x\ty\r1\t2\r => holds no rows
jsonl :: {"a": 1}\n{"a": \n => line 2: not JSON
jsonl :: {"a": DEEP} => line 1: not JSON
jsonl :: [1]\n => line 1: not a JSON object
tsv.gz :: no gzip => cannot read
tsv.gz :: CUT OFF => cannot read
"""
CUT_OFF = gzip.compress(b"x\ty\n" + b"1\t2\n" * 9999, mtime=0)[:-20]


@pytest.mark.parametrize("line", lines(WRONG))
def test_what_is_wrong_is_named_with_file_and_line(tmp_path, line):
    given, _, message = line.partition("=> ")
    name, _, content = given.strip().partition(" ::")
    content = content.replace("DEEP", "[" * 5000 + "]" * 5000)
    written = content.strip().encode().decode("unicode_escape").encode("latin-1")
    path = tmp_path / f"a.{name}"
    path.write_bytes(CUT_OFF if written == b"CUT OFF" else written)
    with refused(message) as error:
        list(read_table(path).rows)
    assert path.name in str(error.value) and "\n" not in str(error.value)


def test_broken_rows_are_passed_over_where_they_are_known_and_missing_columns_named_with_those_there(tmp_path):
    (tmp_path / "a.tsv").write_text("x\ty\n1\t2\n3\n4\t5\n")
    assert values(read_table(tmp_path / "a.tsv", skip_broken=True)) == [["1", "2"], ["4", "5"]]
    with refused("line 1: no column 'z'; it has 'x', 'y'"):
        read_table(tmp_path / "a.tsv").require(["x", "z"])


def test_written_tables_are_whole_or_not_there(tmp_path):
    def lines():
        yield ["1"]
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_table(tmp_path / "a.tsv", ["x"], lines())
    assert list(tmp_path.iterdir()) == []
    assert values(read_table(write_table(tmp_path / "a.tsv", ["x"], [["1"]]))) == [["1"]]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_a_blank_line_of_one_column_is_an_empty_cell(tmp_path, name):
    """Passed over, it would number all answers after it wrong; at the end of a file it is nothing."""
    (tmp_path / name).write_text("text\nfine\n\nfilm\n\n")
    assert [(row.line, row.values["text"]) for row in read_table(tmp_path / name).rows] == [
        (2, "fine"), (3, ""), (4, "film")
    ]  # fmt: skip

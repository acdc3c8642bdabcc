"""Tables as they are published and as users write them, and what is wrong with them."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.tasks.tables import find_table, read_json_lines, read_table, write_table
from tfrecords.base.errors import UserError


def values(table):
    return [list(row.values.values()) for row in table.rows]


def test_a_tsv_keeps_quotes_and_odd_separators(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes('\ufeffx\ty\n"one\t" t\u2028w\u0085o "\r\n\nthree\tfo\rur\n'.encode())
    table = read_table(path)
    assert table.columns == ("x", "y")
    first, second = table.rows
    assert list(first.values.values()) == ['"one', '" t\u2028w\u0085o "'] and first.line == 2
    assert list(second.values.values()) == ["three", "fo\rur"] and second.line == 4


def test_gzip_and_a_given_header(tmp_path):
    with gzip.open(tmp_path / "a.tsv.gz", "wt") as file:
        file.write("1\t2\n3\t4\n")
    rows = list(read_table(tmp_path / "a.tsv.gz", header=("a", "b")).rows)
    assert rows == [(1, {"a": "1", "b": "2"}), (2, {"a": "3", "b": "4"})]


@given(st.lists(st.lists(st.text(alphabet=st.characters(blacklist_categories=["Cs"])), min_size=2, max_size=2)))
def test_csv_cells_come_back_as_they_were(tmp_path_factory, rows):
    import csv

    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["a", "b"], ["first", "row"], *rows])
    assert values(read_table(path)) == [["first", "row"], *rows]


def test_lines_of_a_csv_with_line_feeds_in_cells(tmp_path):
    (tmp_path / "a.csv").write_text('a,b\n"one\ntwo",3\nx,y\n')
    assert [row.line for row in read_table(tmp_path / "a.csv").rows] == [2, 4]


def test_json_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": 1, "b": ["x"]}\n\n{"b": [], "a": "2", "c": 0}\n')
    table = read_json_lines(tmp_path / "a.jsonl")
    assert table.columns == ("a", "b")
    _, second = table.rows
    assert second.values["a"] == "2" and second.line == 3


def test_half_characters_of_json_are_replaced_everywhere(tmp_path):
    """No tokenizer takes them; whole pairs of them are characters."""
    line = r'{"a": "x\ud800", "b": ["\udc00y", "\ud83d\ude00", {"c": "\ud800"}, 1, null]}'
    (tmp_path / "a.jsonl").write_text(line)
    assert values(read_json_lines(tmp_path / "a.jsonl")) == [
        ["x\ufffd", ["\ufffdy", "\U0001f600", {"c": "\ufffd"}, 1, None]]
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", b"", "holds no rows"),
        ("a.tsv", b"x\ty\n", "holds no rows"),
        ("a.tsv", b"x\ty\n1\t2\n3\n", r"line 3: 1 columns, expected 2 \(x, y\)"),
        ("a.tsv", b"x\tx\n1\t2\n", "line 1: a column is there twice"),
        ("a.tsv", b"x\ty\n1\t\xff\n", "line 2: not UTF-8"),
        ("a.csv", b'x,y\n1,"2\n', "line 2: not CSV"),
        ("a.csv", b"x,y\r1,2\r3,4\r", r"line 1: a carriage return \(CR\) stands alone; make line ends LF"),
        ("a.csv", b"x,y\n1,2\n3\r4,5\n", r"line 3: a carriage return \(CR\) stands alone.*take it out of the cell"),
        ("a.tsv", b"x\ty\r1\t2\r", r"line 1: a carriage return \(CR\) stands alone"),
        ("a.jsonl", b'{"a": 1}\n{"a": \n', "line 2: not JSON"),
        ("a.jsonl", b"[1]\n", "line 1: not a JSON object"),
        ("a.tsv.gz", b"no gzip", "cannot read"),
        # No time in it: the bytes are part of the test's name, and all workers must collect the same names.
        ("a.tsv.gz", gzip.compress(b"x\ty\n" + b"1\t2\n" * 9999, mtime=0)[:-20], "cannot read"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        list(read_table(tmp_path / name).rows)
    assert name in str(error.value) and "\n" not in str(error.value)


def test_broken_rows_are_passed_over_where_they_are_known(tmp_path):
    (tmp_path / "a.tsv").write_text("x\ty\n1\t2\n3\n4\t5\n")
    assert values(read_table(tmp_path / "a.tsv", skip_broken=True)) == [["1", "2"], ["4", "5"]]


def test_missing_columns_are_named_with_those_there(tmp_path):
    (tmp_path / "a.tsv").write_text("x\ty\n1\t2\n")
    with pytest.raises(UserError, match="line 1: no column 'z'; it has 'x', 'y'"):
        read_table(tmp_path / "a.tsv").require(["x", "z"])


def test_json_lines_must_have_the_columns_that_are_read_and_may_lack_others(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"text": "x", "label": 1, "source": "y"}\n{"text": "z", "label": 0}\n{"text": ""}\n'
    )
    rows = read_table(tmp_path / "a.jsonl").require(["text", "label"]).rows
    assert [next(rows).values["text"], next(rows).values["text"]] == ["x", "z"]
    with pytest.raises(UserError, match=r"a\.jsonl' line 3: no label, which the first line has; mend the row"):
        next(rows)


def test_two_files_of_one_name_are_refused(tmp_path):
    assert find_table(tmp_path, "train") is None
    (tmp_path / "train.tsv").touch()
    assert find_table(tmp_path, "train") == tmp_path / "train.tsv"
    (tmp_path / "train.csv").touch()
    with pytest.raises(UserError, match=r"train.tsv and train.csv"):
        find_table(tmp_path, "train")


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

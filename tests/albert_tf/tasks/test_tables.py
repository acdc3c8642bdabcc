"""Tables as they are published, and as users, spreadsheets, pandas and numpy write them; what is wrong with them."""

import csv
import gzip
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.tasks.registry import create_task
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.tables.values import is_list, listed
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


TEXTS = ["A fine day, all in all", 'He said "hi"', "a\ttab", "a\nline", "plain", "one; two | three"]
HEADER, ROWS = ["text", "label"], [[text, str(number % 2)] for number, text in enumerate(TEXTS)]


def written(separator, quoting=csv.QUOTE_MINIMAL):
    """What pandas' to_csv writes."""
    text = io.StringIO()
    csv.writer(text, delimiter=separator, quoting=quoting, lineterminator="\n").writerows([HEADER, *ROWS])
    return text.getvalue()


def task_of(folder, name, content, task="classification"):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return create_task(FinetuningSettings(task=task, data_dir=str(folder), output_dir="", config="x"))


def read(folder, name, content, task="classification"):
    return task_of(folder, name, content, task).read("train")


JSON = "".join(json.dumps(dict(zip(HEADER, row))) + "\n" for row in ROWS)
READ = {
    "train.csv": [written(";"), written("\t"), written("|"), "\ufeff" + written(";"), "sep=^\n" + written("^"),
                  written(";").encode("utf-16"), '"sep=\t"\n' + written("\t")],
    "train.tsv": [written(","), written("\t"), written("\t", csv.QUOTE_ALL)],
    "train.TSV": [written(";")],
    **{f"train{end}": [JSON] for end in (".ndjson", ".jsonlines", ".jl", ".JSONL", ".json")}
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_every_separator_and_ending_is_read_as_it_was_meant(tmp_path, name):
    for content in READ[name]:
        assert [[*one.texts, str(one.label)] for one in read(tmp_path, name, content)] == ROWS


# What a file with marks holds, and its texts.
AS_TEXT = [
    ('"Hello, world!"\t0\nno\t1\nno\t1\n', ['"Hello, world!"', "no", "no"]),
    ('"Hello\t0\nworld"\t1\nno\t1\n', ['"Hello', 'world"', "no"]),
    ('"Hello\t0\nworld\t1\nno\t1\n', ['"Hello', "world", "no"]),
    ('5" wide\t0\n"so ""it"" is"\t1\nno\t1\n', ['5" wide', '"so ""it"" is"', "no"]),
    ('"a\u2028""b"""\t0\nno\t1\nno\t1\n', ['a\u2028"b"', "no", "no"]),
    # Marks that are text would leave a row of three cells.
    ('"Hello\t0"\t0\n"no"\t1\nno\t1\n', ["Hello\t0", "no", "no"]),
]


@pytest.mark.parametrize("content, texts", AS_TEXT)
def test_quotation_marks_between_tabs_are_text_unless_all_are_as_pandas_writes_them(tmp_path, content, texts):
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + content)
    assert [row.values["text"] for row in read_table(tmp_path / "train.tsv").rows] == texts
    (tmp_path / "glue.tsv").write_text(written("\t", csv.QUOTE_ALL))
    assert read_table(tmp_path / "glue.tsv", published=True).columns == ('"text"', '"label"')


def test_quoted_names_and_cells_of_several_lines_show_that_marks_quote(tmp_path):
    for content, text in (
        ('"text"\t"label"\n"a"\t"1"\n', "a"),
        ('text\n"a\n\tb\nc"\n', "a\n\tb\nc"),
        ('sep=\t\ntext\tlabel\n"a"\t1\n', '"a"'),
    ):
        (tmp_path / "a.tsv").write_text(content)
        assert next(read_table(tmp_path / "a.tsv").rows).values["text"] == text


def test_one_column_may_hold_any_separator(tmp_path):
    # So may its name, where the rows do not hold as many.
    (tmp_path / "d.tsv").write_text("text, or note\none\ntwo, three\n")
    assert next(row.values for row in read_table(tmp_path / "d.tsv").rows) == {"text, or note": "one"}
    for name in ("a.csv", "b.tsv", "c.jsonl.TSV"):
        (tmp_path / name).write_text("text\none; two | three\nfour\n")
        table = read_table(tmp_path / name)
        assert table.columns == ("text",) and [row.values["text"] for row in table.rows] == ["one; two | three", "four"]


X = '{"text": "a", "label": "x"}\n'


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_number_of_too_many_digits_is_named(tmp_path, kind):
    number = "1" + "0" * 400
    content = {"csv": f"text,label\na,{number}\n", "jsonl": f'\n{{"text": "b", "label": {number}}}'}[kind]
    with refused(f"train.{kind}' line 2: label .* is not a number that float32 holds"):
        read(tmp_path, f"train.{kind}", content, "regression")


WORDS = ["Paris", "it's", 'the "big"', "day,", "日本"]
CELLS = [
    str(WORDS), repr(np.array(WORDS, object)), str([np.str_(word) for word in WORDS]), str(tuple(WORDS)),
    json.dumps(WORDS), WORDS, str(np.array(WORDS)), str(np.array(WORDS)).replace(" 'day", "\n 'day")
]  # fmt: skip


def test_lists_in_cells_are_lists():
    """As Python, numpy, JSON and tuples write them, on one line or on many."""
    assert [listed(cell) for cell in CELLS] == [WORDS] * 8 and all(map(is_list, CELLS))


# The cells of a row as a spreadsheet has them, and what they are read as: words and tags, or a refusal.
CELLS_OF_TAGS = r"""
['Paris', 'is'] | ['B-LOC', 'O'] | Paris is | B-LOC O
Paris\u3000is | ['B-LOC' 'O'] | Paris is | B-LOC O
[ Smith ] | O B-PER O | [ Smith ] | O B-PER O
1,000 , | B-NUM , | 1,000 , | B-NUM ,
[['a', 'b'], ['c']] | O O O | line 2: text is a list in a list
Paris,is | B-LOC,O | line 2: words and tags are separated by commas; separate them by spaces
Paris is | [3, 0] | line 2: label '\[3, 0\]' is a list without quoted names; write names
Paris is | [B-LOC, O] | line 2: .* is a list without quoted names
['a' 'b' ... 'y' 'z'] | O O O O O | line 2: text is a list in a list, or not all of one
"""


@pytest.mark.parametrize("line", lines(CELLS_OF_TAGS))
def test_words_and_tags_from_cells(tmp_path, line):
    tokens, tags, *found = line.replace("\\u3000", "\u3000").split(" | ")
    text = io.StringIO()
    csv.writer(text).writerows([HEADER, [tokens, tags]])
    if len(found) == 1:
        with refused(found[0]):
            read(tmp_path, "train.csv", text.getvalue(), "tagging")
        return
    task = task_of(tmp_path, "train.csv", text.getvalue(), "tagging")
    (example,) = task.read("train")
    assert [example.words, [task.labels[tag] for tag in example.tags]] == [cell.split() for cell in found]


def test_words_that_a_server_would_split_are_counted(tmp_path, caplog):
    line = '{"text": ["New York", "is", "", "big"], "label": ["B-LOC", "O", "O", "O"]}\n'
    read(tmp_path, "train.jsonl", line, "tagging")
    assert "train.jsonl': 2 words are empty or hold white space, such as 'New York' in line 1" in caplog.text


def test_texts_that_are_lists_are_counted(tmp_path, caplog):
    read(tmp_path, "train.jsonl", X + '{"text": "[\'a\', \'b\']", "label": "y"}\n' + X)
    assert "train.jsonl': 1 texts are lists, the first in line 2" in caplog.text

"""Tables as spreadsheets, pandas and numpy write them: read as meant, or refused with file and line."""

import csv
import io
import json

import numpy as np
import pytest

from albert_tf.tasks.cells import is_list, listed
from albert_tf.tasks.registry import create_task
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.table_files import warn_of_unused
from albert_tf.tasks.tables import read_table
from tfrecords.base.errors import UserError

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
    "semicolons": ("train.csv", written(";")),
    "tabs in .csv": ("train.csv", written("\t")),
    "pipes": ("train.csv", written("|")),
    "commas in .tsv": ("train.tsv", written(",")),
    "semicolons in .tsv": ("train.TSV", written(";")),
    "tabs quoted where needed": ("train.tsv", written("\t")),
    "tabs, all quoted": ("train.tsv", written("\t", csv.QUOTE_ALL)),
    "a byte-order mark": ("train.csv", "\ufeff" + written(";")),
    "Excel's line": ("train.csv", "sep=^\n" + written("^")),
    "Excel's line above tabs": ("train.csv", '"sep=\t"\n' + written("\t")),
    **{end: (f"train{end}", JSON) for end in (".ndjson", ".jsonlines", ".jl", ".JSONL", ".json")},
}


@pytest.mark.parametrize("kind", READ)
def test_every_separator_and_ending_is_read_as_it_was_meant(tmp_path, kind):
    assert [[*one.texts, str(one.label)] for one in read(tmp_path, *READ[kind])] == ROWS


AS_TEXT = {
    # Nothing shows that the marks are no part of the text, and something that they are.
    "speech": ('"Hello, world!"\t0\nno\t1\nno\t1\n', ['"Hello, world!"', "no", "no"], True),
    "speech over two rows": ('"Hello\t0\nworld"\t1\nno\t1\n', ['"Hello', 'world"', "no"], True),
    "a mark without another": ('"Hello\t0\nworld\t1\nno\t1\n', ['"Hello', "world", "no"], False),
    "a mark within": ('5" wide\t0\n"so ""it"" is"\t1\nno\t1\n', ['5" wide', '"so ""it"" is"', "no"], False),
    # Marks that are text would leave a row of three cells.
    "a tab within": ('"Hello\t0"\t0\n"no"\t1\nno\t1\n', ["Hello\t0", "no", "no"], False),
}


@pytest.mark.parametrize("kind", AS_TEXT)
def test_quotation_marks_between_tabs_are_text_unless_all_are_as_pandas_writes_them(tmp_path, kind, caplog):
    content, texts, doubtful = AS_TEXT[kind]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + content)
    assert [row.values["text"] for row in read_table(tmp_path / "train.tsv").rows] == texts
    assert ("line 2: a cell begins and ends with a quotation mark" in caplog.text) == doubtful
    (tmp_path / "glue.tsv").write_text(written("\t", csv.QUOTE_ALL))
    assert read_table(tmp_path / "glue.tsv", published=True).columns == ('"text"', '"label"')


def test_one_column_may_hold_any_separator(tmp_path):
    # So may its name, where the rows do not hold as many.
    (tmp_path / "d.tsv").write_text("text, or note\none\ntwo, three\n")
    assert next(row.values for row in read_table(tmp_path / "d.tsv").rows) == {"text, or note": "one"}
    for name in ("a.csv", "b.tsv", "c.jsonl.TSV"):
        (tmp_path / name).write_text("text\none; two | three\nfour\n")
        table = read_table(tmp_path / name)
        assert table.columns == ("text",) and [row.values["text"] for row in table.rows] == ["one; two | three", "four"]


X = '{"text": "a", "label": "x"}\n'
REFUSED = {
    "another separator": ("train.csv", "text^label\na, b^c\n", "line 2: .*if '\\^' separates its columns, write"),
    "no row shows it": ("train.csv", "text::label\nab::c\n", "line 1: no column 'label'.*if '::' separates"),
    "two byte-order marks": ("train.csv", "\ufeff\ufefflabel,text\na,b\n", r"line 1: .*; it has '\\ufefflabel'"),
    "two files in one": ("train.csv", "text,label\na,1\nb,2\n\ufefftext,label\nc,1\n", "line 4: the header again"),
    "UTF-16": ("train.csv", written(",").encode("utf-16"), "is UTF-16 text"),
    "UTF-16 without a mark": ("train.csv", written(",").encode("utf-16-le"), "is UTF-16 text without"),
    "a workbook": ("train.csv", b"PK\x03\x04" + bytes(99), "is an archive .*xlsx"),
    "Windows-1252": ("train.csv", "text,label\na,1\ncafé,2\n".encode("cp1252"), "line 3: not UTF-8: text in .*1252"),
    "a JSON array": ("train.json", f"[{X.strip()}]", "line 1: not a JSON object; write one object a line, as jq -c"),
    "a key twice": ("train.jsonl", '{"text": "a", "label": 1, "label": 2}', "line 1: .*a key is there twice"),
    "deep lists": ("train.jsonl", X + '{"text": ' + "[" * 5000 + "]" * 5000 + "}", "line 2: not JSON"),
    "a list": ("train.jsonl", X + '{"text": "b", "label": ["x"]}', r"line 2: label \['x'\] is a list; .*one label"),
    "an object": ("train.jsonl", X + '{"text": "b", "label": {"x": 1}}', "line 2: label {'x': 1} is an object"),
    "null": ("train.jsonl", X + '{"text": "b", "label": null}', "line 2: label is empty"),
    "NaN": ("train.jsonl", X + '{"text": "b", "label": NaN}', "line 2: label is empty"),
    "a list in a cell": ("train.csv", "text,label\na,x\nb,\"['x', 'y']\"\n", "line 3: label .* is a list"),
    "numbers in a cell": ("train.csv", "text,label\na,x\nb,[0 1 0]\n", "line 3: label .* is a list"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_says_where_and_how_to_go_on(tmp_path, kind):
    name, content, message = REFUSED[kind]
    with pytest.raises(UserError, match=f"{name}' {message}") as error:
        read(tmp_path, name, content)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1e39", "a number that float32 holds, up to 3.4e.38"),
        ("-3.5e38", "a number that float32 holds"),
        ("1" + "0" * 400, "a number that float32 holds"),
        ("inf", "a number that float32 holds"),
        ("nan", "a number; mend the row"),
        ("", "a number"),
        ("1_000", "a number"),
        ('"1,5"', "a number; write a decimal point"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_numbers_that_no_model_can_learn_are_named(tmp_path, value, message, kind):
    content = f"text,label\na,3.4e38\nb,{value}\n"
    if kind == "jsonl":
        value = {"": "null", "inf": "Infinity", "nan": "NaN", "1_000": '"1_000"'}.get(value, value)
        content = f'\n{{"text": "a", "label": 3.4e38}}\n{{"text": "b", "label": {value}}}'
    with pytest.raises(UserError, match=f"train.{kind}' line 3: label .* is not {message}"):
        read(tmp_path, f"train.{kind}", content, "regression")


WORDS = ["Paris", "it's", 'the "big"', "day,", "日本"]
CELLS = {
    "pandas": str(WORDS),
    "numpy": str(np.array(WORDS)),
    "numpy, many lines": str(np.array(WORDS)).replace(" 'day", "\n 'day"),
    "numpy's objects": repr(np.array(WORDS, object)),
    "numpy's strings": str([np.str_(word) for word in WORDS]).replace("'", "'"),
    "a tuple": str(tuple(WORDS)),
    "JSON": json.dumps(WORDS),
    "JSON as it is": WORDS,
}


@pytest.mark.parametrize("kind", CELLS)
def test_lists_in_cells_are_lists(kind):
    assert listed(CELLS[kind]) == WORDS and is_list(CELLS[kind])


@pytest.mark.parametrize(
    "cell", ["[ Smith ] said", "[1]", "('a')", "['a'] b", "[a 'b']", "['a' + 'b']", "a, b", "", None, 1]
)
def test_other_cells_are_none(cell):
    assert listed(cell) is None


@pytest.mark.parametrize(
    ("tokens", "tags", "found"),
    [
        ("['Paris', 'is']", "['B-LOC', 'O']", (["Paris", "is"], ["B-LOC", "O"])),
        ("Paris\u3000is", "['B-LOC' 'O']", (["Paris", "is"], ["B-LOC", "O"])),
        ("[ Smith ]", "O B-PER O", (["[", "Smith", "]"], ["O", "B-PER", "O"])),
        ("[['a', 'b'], ['c']]", "O O O", "line 2: text is a list in a list"),
        ("Paris,is", "B-LOC,O", "line 2: words and tags are separated by commas; separate them by spaces"),
        ("1,000 ,", "B-NUM ,", (["1,000", ","], ["B-NUM", ","])),
        ("Paris is", "[3, 0]", r"line 2: label '\[3, 0\]' is a list without quoted names; write names"),
        ("Paris is", "[B-LOC, O]", "line 2: .* is a list without quoted names"),
        ("['a' 'b' ... 'y' 'z']", "O O O O O", "line 2: text is a list in a list, or not all of one"),
    ],
)
def test_words_and_tags_from_cells(tmp_path, tokens, tags, found):
    text = io.StringIO()
    csv.writer(text).writerows([HEADER, [tokens, tags]])
    if isinstance(found, str):
        with pytest.raises(UserError, match=found):
            read(tmp_path, "train.csv", text.getvalue(), "tagging")
        return
    task = task_of(tmp_path, "train.csv", text.getvalue(), "tagging")
    (example,) = task.read("train")
    assert (example.words, [task.labels[tag] for tag in example.tags]) == found


def test_words_that_a_server_would_split_are_counted(tmp_path, caplog):
    line = '{"text": ["New York", "is", "", "big"], "label": ["B-LOC", "O", "O", "O"]}\n'
    read(tmp_path, "train.jsonl", line, "tagging")
    assert "train.jsonl': 2 words are empty or hold white space, such as 'New York' in line 1" in caplog.text


def test_texts_that_are_lists_are_counted(tmp_path, caplog):
    read(tmp_path, "train.jsonl", X + '{"text": "[\'a\', \'b\']", "label": "y"}\n' + X)
    assert "train.jsonl': 1 texts are lists, the first in line 2" in caplog.text


def test_files_that_nothing_reads_are_named(tmp_path, caplog):
    for name in ("val.csv", "README.md", "LICENSE.txt", "notes.txt", ".hidden"):
        (tmp_path / name).touch()
    (tmp_path / "train.json").touch()
    (tmp_path / "dev.tsv").write_text(written("\t"))
    task = task_of(tmp_path, "train.csv", written(","))
    warn_of_unused(task.files())
    assert f"'{tmp_path}': nothing reads notes.txt, train.json, val.csv; docs" in caplog.text

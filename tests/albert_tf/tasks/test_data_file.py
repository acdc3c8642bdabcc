"""One file of a user's own examples: found columns, kinds and encodings, a fixed split, and what is refused."""

import codecs
import gzip
import json
import random
import re
import unicodedata
from collections import Counter
from functools import partial

import numpy as np
import pytest

from albert_tf import run_finetuning
from albert_tf.tasks.registry import create_task
from albert_tf.tasks.resolving import resolve_data
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.tables.data_file import FileOptions, open_data_file
from tests.conftest import ROOT
from tests.refusals import lines, parsed, refused

ROWS = [(f"Film {number}, gut: „{number % 7}“", "xyz"[number % 3]) for number in range(60)]
TABLE = (ROOT / "tests" / "albert_tf" / "tasks" / "data_file_refusals.txt").read_text(encoding="utf-8")
REFUSED = [re.split(r" *\| *", line) for line in TABLE.splitlines() if not line.startswith("#")]
new_run = partial(FinetuningSettings, output_dir="", config="x")
GOOD = "text,label\\n" + "a,x\\nb,y\\nc,x\\nd,y\\n" * 2


def table(separator=";", header=("Rezension", "Stimmung"), rows=ROWS):
    return "".join(separator.join(row) + "\n" for row in (header, *rows))


def opened(path, content="", **options):
    if content:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return open_data_file(FileOptions(str(path), **{"dev_fraction": 0.1} | options))


def rows_of(data_file, split):
    found = data_file.table(split)
    return [
        (row.values[data_file.options.text_column], row.values[data_file.options.label_column]) for row in found.rows
    ]


def parquet_of(path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    texts, labels = zip(*ROWS)
    columns = {"Rezension": pyarrow.array(texts), "Stimmung": pyarrow.array(labels).dictionary_encode()}
    parquet.write_table(pyarrow.table(columns), path)


JSON = "".join(json.dumps(dict(zip(("Rezension", "Stimmung"), row)), ensure_ascii=False) + "\n" for row in ROWS)
READ = {
    "a.csv": [(table(), ""), (table().encode("utf-8-sig"), ""), (table().encode("cp1252"), "cp1252"),
              (codecs.BOM_UTF16_BE + table().encode("utf-16-be"), "")],
    "a.tsv": [(table("\t"), "")],
    "a.txt": [(table("\t").encode("utf-16"), "")],
    "a.jsonl": [(JSON, ""), (JSON.encode("cp1252"), "cp1252")],
    "a.parquet": [(None, "")]
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_every_form_has_the_same_rows_and_columns_and_holds_out_the_same(tmp_path, name):
    plain = opened(tmp_path / "plain.csv", table())
    for content, encoding in READ[name]:
        if content is None:
            parquet_of(tmp_path / name)
        found = opened(tmp_path / name, content, encoding=encoding)
        assert (found.options.text_column, found.options.label_column) == ("Rezension", "Stimmung")
        assert found.options.task == "classification" and found.labels == {"x": 20, "y": 20, "z": 20}
        train, dev = rows_of(found, "train"), rows_of(found, "dev")
        assert sorted(train + dev) == sorted(ROWS) and found.table("test") is None
        assert dev == rows_of(plain, "dev") and str(found).partition(":")[2] == str(plain).partition(":")[2]


def test_the_rows_held_out_are_the_same_in_any_order_and_of_every_label_alike(tmp_path):
    rows = [*ROWS, ("rare", "w"), *((f"few {number}", "v") for number in range(3))]
    one, other = (
        sorted(rows_of(opened(tmp_path / f"{order}.csv", table(rows=random.Random(order).sample(rows, 64))), "dev"))
        for order in (0, 1)
    )
    # Two of twenty, one of three, and none of one.
    assert one == other and Counter(label for _, label in one) == {"x": 2, "y": 2, "z": 2, "v": 1}


def test_what_is_wrong_with_a_parquet_file_is_named(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path, texts = tmp_path / "a.parquet", pyarrow.array("abcdefgh")
    times = pyarrow.array([2**62, 2**61] * 4, pyarrow.timestamp("us"))
    for columns, names, said in (
        ([texts] * 3, ["text", "label", "label"], "a column is there twice in text, label, label; rename one"),
        ([texts, pyarrow.array([b"x", b"y"] * 4)], ["text", "label"], "row 1: label b'x' is neither a text nor a num"),
        ([texts, times], ["text", "label"], "as Parquet: date value out of range"),
    ):
        parquet.write_table(pyarrow.Table.from_arrays(columns, names=names), path)
        with refused(said):
            opened(path)
    path.write_bytes(path.read_bytes().replace(b"text", b"t\xdaxt"))
    with refused("as Parquet: "):
        opened(path)


def test_utf8_is_read_as_nothing_else_however_late_its_first_accent_is(tmp_path):
    content = ("text,label\n" + "a,x\nb,y\n" * 2000 + "é,x\né,y\n").encode()
    # Damaged bytes among others make no other encoding of it.
    for damage in (b"", b"\xe9,x\n"):
        with refused("is UTF-8, not latin-1; leave out --encoding"):
            opened(tmp_path / "a.csv", content + damage, encoding="latin-1")


@pytest.mark.parametrize("encoding", ["", "cp1252"])
def test_a_line_without_an_end_is_refused(tmp_path, monkeypatch, encoding):
    """And a damaged archive."""
    monkeypatch.setattr("tfrecords.base.tables.LONGEST_LINE", 2**16)
    whole = (table() + "x" * 2**17).encode(encoding or "utf-8")
    damaged = bytearray(gzip.compress(table().encode(encoding or "utf-8")))
    damaged[len(damaged) // 3] ^= 0xFF
    for content, said in (
        (gzip.compress(whole), "line 62 is longer than 65,536; is a line end missing"),
        (bytes(damaged), r"cannot read '.*a\.csv\.gz'"),
    ):
        with refused(said):
            opened(tmp_path / "a.csv.gz", content, encoding=encoding)


KINDS = """
a;1/b;2/c;1 | classification | 2 classes (1 2, 2 1)
a;1.0/b;0.0/c;1.0 | classification | 2 classes (0.0 1, 1.0 2)
a;1.5/b;2/c;3 | regression | numbers
a;1e-3/b;2/c;3 | regression | numbers
a;4,5/b;2,25/c;3 | regression | numbers with a decimal comma
a;4,5/b;4,5/c;gut | classification | 2 classes (4,5 2, gut 1)
a;1/b;n.a./c;1 | classification | 2 classes (1 2, n.a. 1)
a;['joy']/b;[]/c;['joy', 'anger'] | multilabel | 2 labels, several a text (anger 1, joy 2)
"""


@pytest.mark.parametrize("line", lines(KINDS))
def test_the_kind_of_task_is_found_in_the_labels_and_said(tmp_path, line):
    rows, task, said = line.split(" | ")
    found = opened(tmp_path / "a.csv", "text;label\n" + rows.replace("/", "\n") + "\n", dev_fraction=0.0)
    assert found.options.task == task and f"label 'label': {said}; 3 rows to train on, none held out" in str(found)


def test_numbers_with_a_decimal_comma_are_learned_as_they_were_meant(tmp_path):
    (tmp_path / "a.csv").write_text("text;label\na;4,5\nb;2,25\nc;3\n")
    settings = new_run(data_file=str(tmp_path / "a.csv"), dev_fraction=0)
    examples = create_task(settings).read("train")
    assert [(example.label, example.index) for example in examples] == [(4.5, "2"), (2.25, "3"), (3.0, "4")]


@pytest.mark.parametrize("task", ["", "classification", "tagging"])
def test_a_folder_is_found_out_about_as_a_file_is(tmp_path, task):
    (tmp_path / "train.csv").write_text("Review;Sentiment\ngood film;x x\nbad film;y y\nfilm good;x x\n")
    found, data_file = resolve_data(new_run(task=task, data_dir=str(tmp_path)))
    assert data_file is None and resolve_data(found) == (found, None)
    assert (found.task, found.text_column, found.label_column) == (task or "classification", "Review", "Sentiment")
    # What GLUE's tasks read, no flag decides; runs of before say these names.
    glue, _ = resolve_data(new_run(task="sst2", data_dir="x"))
    assert (glue.text_column, glue.label_column) == ("text", "label")


# Each spells a text anew.
SPELLINGS = {
    "composed": partial(unicodedata.normalize, "NFC"),
    "decomposed": partial(unicodedata.normalize, "NFD"),
    "capitals": str.upper,
    "spaces": lambda text: f"\u00a0{text.replace(' ', '  ')}\t",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("second", ["", "other"])
def test_a_text_and_its_other_spelling_or_order_are_on_one_side(tmp_path, spelling, second):
    texts = [(f"der größte Café {n}", f"naïf {n}") for n in range(40)]
    twins = [tuple(SPELLINGS[spelling](text) for text in row[:: -1 if second else 1]) for row in texts]
    rows = [(*row, "xy"[n % 2]) for n, row in enumerate(texts + twins)]
    content = "".join(json.dumps(dict(zip(("text", "other", "label"), row))) + "\n" for row in rows)
    found = opened(tmp_path / "a.jsonl", content, second_text_column=second, dev_fraction=0.2)
    assert found.repeated == 40 and found.held_out.sum() == 16
    np.testing.assert_array_equal(found.held_out[:40], found.held_out[40:])


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_no_data_file_is_refused_before_tensorflow_is_imported(tmp_path, monkeypatch, number):
    name, content, given, said = REFUSED[number]
    monkeypatch.chdir(tmp_path)
    if name != "-":
        (tmp_path / name).write_bytes(content.replace("GOOD", GOOD).encode().decode("unicode_escape").encode("latin-1"))
        given = given if "--data_file=" in given else f"--data_file={name} {given}"
    with refused(re.escape(said)):
        # What the command does before it imports TensorFlow; tests/test_commands.py runs some without it.
        run_finetuning.checked(parsed(FinetuningSettings, [*given.split(), "--output_dir=out", "--config=albert_tiny"]))
    assert [path.name for path in tmp_path.iterdir()] == [name] * (name != "-")

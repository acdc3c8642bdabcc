"""Training rows on disk are the rows that the whole list of examples would have made."""

import errno
import hashlib
import json
import os
import tracemalloc

import keras
import numpy as np
import pytest

from albert_tf.tasks import stored
from albert_tf.tasks.registry import create_task
from albert_tf.tasks.rows import Rows
from albert_tf.tasks.settings import FinetuningSettings
from albert_tf.tasks.stored import chunked, store
from albert_tf.training.batches import training_batches
from albert_tf.training.preparation import digest
from tfrecords.base.errors import UserError
from tfrecords.tokenizers.loading import load_tokenizer


def rows_of(first: int, last: int, lead: tuple[int, ...] = ()) -> Rows:
    """Row n has n % 50 + 1 columns."""
    ids = [np.full((*lead, n % 50 + 1), n, np.int32) for n in range(first, last)]
    tokens = {"input_ids": ids, "input_mask": [np.ones_like(row) for row in ids]}
    return Rows(tokens, {"label": np.arange(first, last, dtype=np.int32)}, pad_id=0, target="label")


def in_chunks(rows: int, size: int, lead: tuple[int, ...] = ()):
    return (rows_of(part[0], part[-1] + 1, lead) for part in chunked(range(rows), size))


@pytest.mark.parametrize("lead", [(), (4,)])
def test_batches_are_those_of_rows_in_memory_bit_for_bit(lead, monkeypatch):
    monkeypatch.setattr(stored, "_BLOCK", 7)
    held, kept = rows_of(0, 103, lead), store(in_chunks(103, 10, lead))
    np.testing.assert_array_equal(held.lengths, kept.lengths)
    pairs = zip(
        *(training_batches(rows, 8, 64, 3, first_batch=5).take(20).as_numpy_iterator() for rows in (held, kept))
    )
    for (expected, labels), (found, found_labels) in pairs:
        assert expected.keys() == found.keys() and (labels == found_labels).all()
        for name in expected:
            np.testing.assert_array_equal(expected[name], found[name], strict=True)


def test_the_digest_is_what_runs_of_before_wrote_down():
    """Which held all rows in memory and gave the hash each row's bytes."""
    held, state = rows_of(0, 103), hashlib.sha256()
    for name in sorted(held.tokens):
        state.update(b"".join(row.tobytes() for row in held.tokens[name]))
    state.update(held.lengths.tobytes() + held.values["label"].tobytes())
    assert digest(store(in_chunks(103, 10))) == state.hexdigest()


DATA = {
    "classification": ("train.tsv", "text\tlabel\n" + "".join(f"{'a loop ' * n}it\t{n % 3}\n" for n in range(11))),
    "regression": ("train.csv", "text,label\n" + "".join(f"{'a loop ' * n}it is {n},{n}.5\n" for n in range(11))),
    "tagging": ("train.tsv", "text\tlabel\n" + "".join(f"{'a ' * n}loop\t{'O ' * n}B-x\n" for n in range(11))),
    "race": (
        "train/high/all.txt",
        "".join(
            json.dumps({"article": f"a loop {n}", "questions": ["is it _?"] * 2, "answers": ["A", "C"],
                        "options": [["a", "b c", "d", "e"]] * 2}) + "\n"
            for n in range(4)
        ),
    ),
    "squad1": (
        "train-v1.1.json",
        json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": [
            {"context": f"it is {'a loop ' * 9 * n}of {n}",
             "qas": [{"id": f"{n}{q}", "question": "what is it?", "answers": [{"text": "is", "answer_start": 3}]}
                     for q in range(2)]}
            for n in range(5)
        ]}]}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_a_tasks_examples_in_chunks_make_the_rows_of_all_at_once(name, tmp_path, tiny_data):
    file, content = DATA[name]
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(content)
    task = create_task(FinetuningSettings(task=name, data_dir=str(tmp_path), output_dir="", config="x"))
    tokenizer, examples = load_tokenizer(tiny_data), task.read("train")
    held = task.rows(examples, tokenizer, 24, training=True)
    kept = store(task.rows(part, tokenizer, 24, training=True) for part in chunked(task.stream("train"), 3))
    assert len(examples) > 6 and len(kept) == len(held)
    for index, length in enumerate(held.lengths):
        for expected, found in zip(held.batch([index], length), kept.batch([index], length), strict=True):
            keras.tree.map_structure(lambda *pair: np.testing.assert_array_equal(*pair, strict=True), expected, found)


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("regression", "it,no number\n", "label 'no number' is not a number"),
        ("tagging", "a b\tO\n", "2 words but 1 tags"),
    ],
)
def test_what_may_be_large_is_read_example_by_example(name, line, message, tmp_path):
    """So what is wrong with the last line is found after all others were given."""
    file, content = DATA[name]
    (tmp_path / file).write_text(content)
    task = create_task(FinetuningSettings(task=name, data_dir=str(tmp_path), output_dir="", config="x"))
    expected = task.read("train")
    with open(tmp_path / file, "a") as end:
        end.write(line)
    examples = task.stream("train")
    assert [next(examples) for _ in expected] == expected
    with pytest.raises(UserError, match=f"line 13: {message}"):
        next(examples)


def test_ten_times_the_rows_take_no_more_memory():
    def peak(rows):
        tracemalloc.start()
        kept = store(in_chunks(rows, 500))
        assert len(kept) == rows and kept.tokens["input_ids"][rows - 1][0] == rows - 1
        try:
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # Of a row stay its place and its label; held in memory one is some 400 bytes.
    assert peak(20_000) - peak(2_000) < 18_000 * 40


def test_no_rows_and_no_room_are_named(monkeypatch, tmp_path):
    with pytest.raises(UserError, match="no example is left to train on"):
        store(in_chunks(0, 10))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(stored.tempfile, "tempdir", None)

    def full(**_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(stored.tempfile, "TemporaryFile", full)
    with pytest.raises(UserError, match=f"in '{tmp_path}': No space left on device; set TMPDIR"):
        store(in_chunks(5, 10))

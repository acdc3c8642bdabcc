"""Rows of the light runtime are those of `tfrecords.reading.framing`."""

import numpy as np
import pytest
import tensorflow as tf

from serving.lite.rows import Framer as LiteFramer
from tfrecords.reading.framing import Framer


@pytest.fixture(params=["albert", "roberta"])
def framers(request, tokenizer_of):
    tokenizer = tokenizer_of(request.param)
    return lambda length: (Framer(tokenizer, length), LiteFramer(tokenizer, length))


def ragged(*rows):
    return tf.ragged.constant([list(row) for row in rows], tf.int32)


def assert_equal(rows, own):
    assert rows.input_ids.to_list() == [row["input_ids"].tolist() for row in own]
    assert rows.segment_ids.to_list() == [row["segment_ids"].tolist() for row in own]
    assert [int(row["lengths"]) for row in own] == [len(row["input_ids"]) for row in own]


@pytest.mark.parametrize("length", [5, 8, 13, 40])
@pytest.mark.parametrize("sizes", [(0, 0), (1, 3), (3, 1), (30, 2), (2, 30), (30, 31), (5, 5)])
def test_texts_pairs_and_choices(framers, length, sizes):
    ours, lite = framers(length)
    first, second = (np.arange(7, 7 + size, dtype=np.int32) for size in sizes)
    assert_equal(ours.single(ragged(first)), [lite.frame(first)])
    assert_equal(ours.pair(ragged(first), ragged(second)), [lite.frame(first, second)])
    assert_equal(ours.choices(ragged(first), ragged(second)), [lite.choice(first, second)])


@pytest.mark.parametrize("sizes", [(1,), (1, 0, 2), (3,) * 9, (20,), (0, 0)])
def test_words(framers, sizes):
    ours, lite = framers(12)
    words = [np.arange(7, 7 + size, dtype=np.int32) for size in sizes]
    rows, columns = ours.words(tf.RaggedTensor.from_row_lengths(ragged(*words), [len(words)]))
    row, heads = lite.words(words)
    assert_equal(rows, [row])
    assert heads.tolist() == [column for column in columns.to_list()[0] if column < 11]


@pytest.mark.parametrize("size", [0, 1, 5, 9, 23, 60])
@pytest.mark.parametrize("length, stride, asked", [(12, 3, 2), (12, 128, 9), (20, 5, 0), (20, 4, 30)])
def test_windows(framers, size, length, stride, asked):
    ours, lite = framers(length)
    question, context = (np.arange(7, 7 + count, dtype=np.int32) for count in (asked, size))
    expected = ours.windows(ragged(question), ragged(context), stride, 6)
    found = list(lite.windows(question, context, stride, 6))
    assert_equal(expected.rows, [window.row for window in found])
    for name in ("first_token", "first_column", "size"):
        assert getattr(expected, name).numpy().tolist() == [getattr(window, name) for window in found]
    is_best = [row[window.first_column :][: window.size] for row, window in zip(expected.is_best.to_list(), found)]
    assert is_best == [window.is_best.tolist() for window in found]

"""Windows of the light runtime are those of `tfrecords.reading.framing`; other rows: see test_signatures.py."""

import numpy as np
import pytest
import tensorflow as tf

from serving.lite.rows import Framer as LiteFramer
from tfrecords.reading.framing import Framer


@pytest.mark.parametrize("family", ["albert", "roberta"])
@pytest.mark.parametrize("size", [0, 1, 5, 9, 23, 60])
@pytest.mark.parametrize("length, stride, asked", [(12, 3, 2), (12, 128, 9), (20, 5, 0), (20, 4, 30)])
def test_windows(tokenizer_of, family, size, length, stride, asked):
    texts = [np.arange(7, 7 + count, dtype=np.int32) for count in (asked, size)]
    ragged = [tf.RaggedTensor.from_row_lengths(ids, [len(ids)]) for ids in texts]
    expected = Framer(tokenizer_of(family), length).windows(*ragged, stride, 6)
    found = list(LiteFramer(tokenizer_of(family), length).windows(*texts, stride, 6))
    for name in ("input_ids", "segment_ids"):
        assert getattr(expected.rows, name).to_list() == [window.row[name].tolist() for window in found]
    assert [int(window.row["lengths"]) for window in found] == [len(window.row["input_ids"]) for window in found]
    for name in ("first_token", "first_column", "size"):
        assert getattr(expected, name).numpy().tolist() == [getattr(window, name) for window in found]
    is_best = [row[window.first_column :][: window.size] for row, window in zip(expected.is_best.to_list(), found)]
    assert is_best == [window.is_best.tolist() for window in found]

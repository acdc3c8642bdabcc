"""Framing, padding and length buckets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.tasks.rows import Rows, frame, padded_length
from albert_tf.training.batches import POOL, epoch_order, evaluation_batches, training_batches


class Ids:
    cls_id, sep_id, pad_id = 2, 3, 0


def official_pair(first, second, room):
    """classifier_utils.py's loop, written anew."""
    first, second = list(first), list(second)
    while len(first) + len(second) > room:
        (first if len(first) > len(second) else second).pop()
    return [2, *first, 3, *second, 3], [0] * (len(first) + 2) + [1] * (len(second) + 1)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(5, 40))
@settings(max_examples=100, deadline=None)
def test_pairs_are_cut_as_the_official_code_does(first, second, length):
    a, b = np.arange(10, 10 + first), np.arange(50, 50 + second)
    ids, segments = frame(Ids, a, b, length)
    expected_ids, expected_segments = official_pair(a, b, length - 3)
    assert ids.tolist() == expected_ids and segments.tolist() == expected_segments
    ids, segments = frame(Ids, a, None, length)
    assert ids.tolist() == [2, *a[: length - 2], 3] and not segments.any() and len(ids) == len(segments)


@given(st.integers(1, 8000), st.integers(8, 8192))
def test_padded_lengths_hold_the_row_with_little_padding(length, limit):
    padded = padded_length(length, limit)
    assert padded >= length
    assert padded <= max(limit, length)
    assert padded < length + max(8, length / 2) or padded == limit


def rows_of(lengths):
    ids = [np.full(length, 7, np.int32) for length in lengths]
    ones = [np.ones(length, np.int32) for length in lengths]
    tokens = {"input_ids": ids, "input_mask": ones, "segment_ids": [np.zeros_like(row) for row in ids]}
    return Rows(tokens, {"label": np.arange(len(lengths), dtype=np.int32)}, pad_id=0, target="label")


@pytest.mark.parametrize("bucketed", [True, False])
def test_an_epoch_has_every_row_at_most_once_and_differs_from_the_next(bucketed):
    lengths = np.random.default_rng(0).integers(3, 60, 1003)
    first, again, second = (epoch_order(lengths, 8, 1, epoch, bucketed) for epoch in (0, 0, 1))
    assert first.shape == (125, 8) and len(np.unique(first)) == 1000
    np.testing.assert_array_equal(first, again)
    assert (first != second).any() and set(range(1003)) - set(first.ravel()) != set(range(1003)) - set(second.ravel())


def test_bucketed_batches_are_of_like_length_and_in_no_order():
    lengths = np.random.default_rng(0).integers(3, 60, 8 * POOL * 4)
    spread = {flag: np.ptp(lengths[epoch_order(lengths, 8, 1, 0, flag)], axis=1).mean() for flag in (True, False)}
    assert spread[True] < spread[False] / 10
    means = lengths[epoch_order(lengths, 8, 1, 0)].mean(axis=1)
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2


def test_labels_are_as_mixed_in_bucketed_batches_as_in_random_ones():
    """Rows of one length but two labels: sorting must not bring equal labels together."""
    labels = np.arange(8 * POOL * 4) % 2
    shares = labels[epoch_order(np.full(len(labels), 9), 8, 3, 0)].mean(axis=1)
    # Binomial: the variance of a mean of 8 fair coins is 1/32.
    assert 0.6 / 32 < shares.var() < 1.5 / 32


def test_batches_go_on_after_any_batch():
    rows = rows_of(np.random.default_rng(0).integers(3, 30, 50))
    straight = list(training_batches(rows, 8, 32, seed=5).take(14).as_numpy_iterator())
    resumed = list(training_batches(rows, 8, 32, seed=5, first_batch=9).take(5).as_numpy_iterator())
    for expected, found in zip(straight[9:], resumed, strict=True):
        np.testing.assert_array_equal(expected[0]["input_ids"], found[0]["input_ids"])
        np.testing.assert_array_equal(expected[1], found[1])


def test_fewer_rows_than_a_batch_make_one_smaller_batch():
    (features, labels), *_ = training_batches(rows_of([4, 5, 6]), 8, 32, seed=0).take(2).as_numpy_iterator()
    assert features["input_ids"].shape == (3, 8) and sorted(labels) == [0, 1, 2]


def test_padding_and_fixed_length():
    rows = rows_of([3, 5])
    features, labels = rows.batch([1, 0], 8)
    assert features["input_mask"].tolist() == [[1] * 5 + [0] * 3, [1] * 3 + [0] * 5]
    assert (features["input_ids"] == 7 * features["input_mask"]).all() and labels.tolist() == [1, 0]
    ((features, _),) = training_batches(rows, 2, 32, seed=0, bucketed=False).take(1).as_numpy_iterator()
    assert features["input_ids"].shape == (2, 32)


def test_evaluation_has_every_row_once():
    rows = rows_of([3, 30, 5, 9, 12])
    batches = list(evaluation_batches(rows, 2, 32))
    assert sorted(index for indices, _ in batches for index in indices) == [0, 1, 2, 3, 4]
    assert [features["input_ids"].shape for _, features in batches] == [(2, 32), (2, 16), (1, 8)]

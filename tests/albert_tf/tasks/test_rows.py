"""Rows in memory and on disk, their padding, length buckets and weights, and what they leave out of their texts."""

import errno
import os

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from albert_tf.loading import answers
from albert_tf.tasks import rows as rows_file
from albert_tf.tasks.race import RaceExample, RaceTask
from albert_tf.tasks.rows import FeatureRows, RaggedArray, chunked, padded_length, store, text_rows, weigh
from albert_tf.tasks.tagging import TaggedExample, tagged_rows
from albert_tf.training.loop.batches import POOL, epoch_order, training_batches
from tests.refusals import lines, refused
from tests.tfrecords.tokenizers.twins import wordpiece
from tfrecords.answers.texts import Truncation


def ragged(arrays):
    """Arrays [..., length] as one RaggedArray."""
    lengths = [array.shape[-1] for array in arrays]
    flat = np.concatenate([np.ravel(array) for array in [*arrays, np.empty(0, np.int32)]])
    return RaggedArray(flat.astype(np.int32), np.cumsum([0, *lengths]), arrays[0].shape[:-1] if arrays else ())


@given(st.integers(1, 8000), st.integers(8, 8192))
def test_padded_lengths_hold_the_row_with_little_padding(length, limit):
    padded = padded_length(length, limit)
    assert padded >= length
    assert padded <= max(limit, length)
    assert padded < length + max(8, length / 2) or padded == limit
    assert length <= padded_length(length, limit, any_shape=True) <= min(padded, length + 1)


def numbered_rows(first, last, lead=()):
    """Row n has n % 50 + 1 columns."""
    ids = [np.full((*lead, n % 50 + 1), n, np.int32) for n in range(first, last)]
    tokens = {"input_ids": ragged(ids), "input_mask": ragged([np.ones_like(row) for row in ids])}
    return FeatureRows(tokens, {"label": np.arange(first, last, dtype=np.int32)}, pad_id=0, target="label")


def test_an_epoch_has_every_row_at_most_once_and_differs_from_the_next():
    lengths = np.random.default_rng(0).integers(3, 60, 1003)
    first, again, second = (epoch_order(lengths, 8, 1, epoch) for epoch in (0, 0, 1))
    assert first.shape == (125, 8) and len(np.unique(first)) == 1000
    assert_array_equal(first, again)
    assert (first != second).any() and set(range(1003)) - set(first.ravel()) != set(range(1003)) - set(second.ravel())


def test_bucketed_batches_are_of_like_length_and_in_no_order():
    lengths = np.random.default_rng(0).integers(3, 60, 8 * POOL * 4)
    # Of 8 rows in any order it is about 44.
    assert np.ptp(lengths[epoch_order(lengths, 8, 1, 0)], axis=1).mean() < 4
    means = lengths[epoch_order(lengths, 8, 1, 0)].mean(axis=1)
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2


def test_labels_are_as_mixed_in_bucketed_batches_as_in_random_ones():
    """Rows of one length but two labels: sorting must not bring equal labels together."""
    labels = np.arange(8 * POOL * 4) % 2
    shares = labels[epoch_order(np.full(len(labels), 9), 8, 3, 0)].mean(axis=1)
    # Binomial: the variance of a mean of 8 fair coins is 1/32.
    assert 0.6 / 32 < shares.var() < 1.5 / 32


def test_padding_fixed_length_and_fewer_rows_than_a_batch():
    rows = numbered_rows(2, 5)
    features, labels = rows.batch([2, 0], 8)
    assert features["input_mask"].tolist() == [[1] * 5 + [0] * 3, [1] * 3 + [0] * 5]
    assert (features["input_ids"] == labels[:, None] * features["input_mask"]).all() and labels.tolist() == [4, 2]
    features, labels = next(iter(training_batches(rows, 8, 32, seed=0)))
    assert features["input_ids"].shape == (3, 6) and sorted(labels) == [2, 3, 4]


def stored(rows, size, lead=()):
    return store(numbered_rows(part[0], part[-1] + 1, lead) for part in chunked(range(rows), size))


@pytest.mark.parametrize("lead", [(), (4,)])
def test_batches_are_those_of_rows_in_memory_bit_for_bit_after_any_batch(lead, monkeypatch):
    monkeypatch.setattr(rows_file, "_BLOCK", 7)
    held, kept = numbered_rows(0, 103, lead), stored(103, 10, lead)
    assert_array_equal(held.lengths, kept.lengths)
    straight = training_batches(held, 8, 64, 3).take(25).as_numpy_iterator()
    resumed = training_batches(kept, 8, 64, 3, first_batch=15).take(10).as_numpy_iterator()
    for expected, found in zip(list(straight)[15:], resumed, strict=True):
        keras.tree.map_structure(lambda *pair: assert_array_equal(*pair, strict=True), expected, found)


def test_no_rows_and_no_room_are_named(monkeypatch, tmp_path):
    with refused("no example is left to train on"):
        stored(0, 10)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(rows_file.tempfile, "tempdir", None)

    def full(**_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(rows_file.tempfile, "TemporaryFile", full)
    with refused(f"in '{tmp_path}': No space left on device; set TMPDIR"):
        stored(5, 10)


LABELS = ("no", "yes", "maybe=1")


def classed(classes, target="label"):
    tokens = {"input_ids": ragged([np.array([1, 2], np.int32)] * len(classes))}
    return FeatureRows(tokens, {"label": np.array(classes, np.int32)}, 0, target=target)


def test_classes_are_weighed_by_balance_or_by_name_and_others_stay_at_one():
    _, _, weights = weigh(classed([0, 0, 0, 1, 1, 2]), LABELS, "balanced").batch(range(6), 2)
    assert_allclose(weights, np.array([2, 2, 2, 3, 3, 6]) / 3, rtol=1e-6)
    assert weights.dtype == np.float32
    _, labels, weights = weigh(classed([0, 1, 2]), LABELS, "yes=3,maybe=1=0.5").batch([0, 1, 2], 2)
    assert labels.tolist() == [0, 1, 2] and weights.tolist() == [1, 3, 0.5]


REFUSED = """
perhaps=2 => names 'perhaps', which is none of no, yes
balance => names 'balance', which is none of no, yes, maybe=1; give balanced, or name=weight
no=-1 => '-1' is no weight
no=nan => 'nan' is no weight
no=much => 'much' is no weight
"""


def test_what_is_no_weight_is_named():
    for weights, _, message in (line.partition(" => ") for line in lines(REFUSED)):
        with refused(message):
            weigh(classed([0, 1]), LABELS, weights)
    for rows, labels in ((classed([0, 1]), None), (classed([0, 1], target="tag"), LABELS)):
        with refused("give every text a class"):
            weigh(rows, labels, "balanced")


SHORT, LONG = "a good film", "good film " * 20
TEXTS = [SHORT, LONG, ""]
TOKENIZER = wordpiece("a", "good", "film")


MAKERS = {
    "texts": lambda limit: text_rows(TOKENIZER, [TEXTS], limit),
    "pairs": lambda limit: text_rows(TOKENIZER, [TEXTS, [LONG, SHORT, ""]], limit),
    "choices": lambda limit: RaceTask("").rows(
        [RaceExample("1", "high", text, (SHORT, "film", LONG, "a"), 0) for text in TEXTS],
        TOKENIZER,
        limit,
        training=True,
    ),
    "tags": lambda limit: tagged_rows(
        [TaggedExample(text.split(), [0] * len(text.split())) for text in TEXTS], TOKENIZER, limit, training=True
    ),
    "masks": lambda limit: answers._masked_rows(TOKENIZER, ["[MASK] " + text for text in TEXTS], limit),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_cut_is_counted(maker):
    """Against the same rows with room for everything."""
    whole, cut = (MAKERS[maker](limit) for limit in (200, 16))
    sizes, kept = (np.array([int(mask.sum()) for mask in rows.tokens["input_mask"]]) for rows in (whole, cut))
    assert whole.truncation.truncated_texts == whole.truncation.truncated_tokens == 0
    expected = Truncation(3, int((sizes > kept).sum()), whole.truncation.tokens, int((sizes - kept).sum()))
    assert cut.truncation == expected and expected.truncated_texts
    # [CLS] and [SEP] are no tokens of the texts.
    assert whole.truncation.tokens < sizes.sum()

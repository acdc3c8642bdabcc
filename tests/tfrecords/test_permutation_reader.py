"""Permutation records to batches: who may attend to whom, in what order, and row after row of the same text."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal, assert_equal

from tests.refusals import refused
from tests.tfrecords.test_permutation import PERMUTATION, rows_of
from tfrecords.reading.permutations import permutation_masks, read_permutations

CLS, SEP = 2, 3


def reference(input_ids, is_masked, orders, reuse):
    """Who may not attend to whom and what is predicted, said of one pair of one row after the other.

    Tokens are known from the start, or, masked ones and [CLS] and [SEP], once their turn has come. A target is
    told what was known before its turn; [CLS] and [SEP] also themselves; a known token what is known from the start.
    """
    rows, sequence = input_ids.shape
    blocked, targets = np.ones((rows, sequence, sequence), bool), np.zeros((rows, sequence), bool)
    for row, reader, read in itertools.product(range(rows), range(sequence), range(sequence)):
        functional = {place: input_ids[row, place] in (CLS, SEP) for place in (reader, read)}
        turns = {
            place: orders[row, place] if is_masked[row, place] or functional[place] else None
            for place in (reader, read)
        }
        targets[row, reader] = is_masked[row, reader] and not functional[reader]
        if (reader < reuse) != (read < reuse):
            blocked[row, reader, read] = reader < reuse
        elif turns[read] is None:
            blocked[row, reader, read] = False
        elif turns[reader] is None:
            blocked[row, reader, read] = True
        elif functional[reader]:
            blocked[row, reader, read] = turns[read] > turns[reader]
        else:
            blocked[row, reader, read] = turns[read] >= turns[reader]
    return blocked, targets


@st.composite
def batches_of_rows(draw):
    sequence = draw(st.integers(2, 12))
    reuse = draw(st.integers(0, sequence - 1))
    rows = draw(st.integers(1, 3))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    input_ids = random.integers(2, 9, (rows, sequence)).astype(np.int32)
    is_masked = random.random((rows, sequence)) < draw(st.floats(0, 1))
    parts = [np.argsort(random.random((rows, size)), axis=1) for size in (reuse, sequence - reuse)]
    return input_ids, is_masked, np.concatenate(parts, axis=1).astype(np.int32), reuse


@given(batches_of_rows())
def test_masks_are_those_of_a_reference_written_apart(batch):
    for found, expected in zip(permutation_masks(*batch, (CLS, SEP)), reference(*batch)):
        assert_array_equal(found, expected)


def test_masks_of_a_row_by_hand():
    """1: may attend. The tokens a B c D [SEP], capitals masked, in the order D, B, [SEP], as one part.

    tf-models' masks (nlp/modeling/networks/xlnet_base_test.py, test_permutation_and_input_mask) have 1 for the same.
    """
    ids, masked = np.array([[10, 11, 12, 13, SEP]], np.int32), np.array([[0, 1, 0, 1, 0]]) > 0
    blocked, targets = permutation_masks(ids, masked, np.array([[4, 1, 3, 0, 2]], np.int32), 0, (CLS, SEP))
    assert_array_equal(targets, [[False, True, False, True, False]])
    assert_array_equal(
        1 - blocked.numpy()[0].astype(int),
        [list(map(int, row)) for row in ("10100", "10110", "10100", "10100", "11111")],
    )


def rows_in(folder, split):
    return sum(len(rows_of(path)["label"]) for path in folder.glob(f"{split}-*"))


def batches(folder, count=None, batch_size=8, training=True, **options):
    dataset = read_permutations(str(folder), batch_size, training, **options)
    return list(itertools.islice(dataset.as_numpy_iterator(), count))


@pytest.fixture(scope="module")
def folder(build):
    return build(**PERMUTATION)


def test_content_keeps_the_true_tokens_and_targets_are_they(folder):
    """As HuggingFace's collator does not: it writes [MASK] into what later targets are to see."""
    written = {row.tobytes() for path in folder.glob("train-*") for row in rows_of(path)["input"].astype(np.int32)}
    for batch in batches(folder, 8):
        assert all(row.tobytes() in written for row in batch["input_ids"])
        weights, places = batch["masked_lm_weights"] > 0, batch["masked_lm_positions"]
        ids = np.take_along_axis(batch["input_ids"], places, axis=1)
        assert_array_equal(batch["masked_lm_ids"], np.where(weights, ids, 0))
        assert (ids[weights] != CLS).all() and (ids[weights] != SEP).all() and (places[~weights] == 0).all()
        hidden = np.take_along_axis(batch["perm_mask"], places[:, :, None], axis=1)
        own = np.take_along_axis(hidden, places[:, :, None], axis=2)[:, :, 0]
        assert own[weights].all()


def test_a_row_goes_on_where_the_same_row_of_the_batch_before_ended(folder):
    """For ever, but where its lane goes on to another file or epoch; backwards rows are in the second half."""
    found = batches(folder, 80)
    follows = []
    for one, other in itertools.pairwise(found):
        assert_array_equal(one["is_reversed"], np.repeat([0, 1], 4))
        ahead, begun = one["input_ids"][:, 32:61], other["input_ids"][:, :29]
        length = np.argmax(one["input_ids"][:, 32:] == SEP, axis=1)
        follows.append([(a[:n] == b[:n]).all() for a, b, n in zip(ahead, begun, length)])
    assert np.mean(follows) > 0.98


def test_an_epoch_is_each_lane_once_and_the_next_has_another_order(folder):
    rows = rows_in(folder, "train")
    steps = rows // 64
    two = [[row.tobytes() for row in batch["input_ids"]] for batch in batches(folder, 2 * steps, batch_size=64)]
    first, second = (set(itertools.chain.from_iterable(epoch)) for epoch in (two[:steps], two[steps:]))
    assert rows - 64 < sum(map(len, two[:steps])) <= rows and len(first) > 0.98 * rows
    # Up to 15 steps of four rows do not fill a step of 16 lanes.
    assert len(first & second) > 0.98 * len(first) and two[:steps] != two[steps:]


def test_training_goes_on_after_any_batch(folder):
    # More than an epoch.
    straight = batches(folder, 160, seed=3)
    for skip in (1, 150):
        assert_equal(batches(folder, 3, seed=3, skip_batches=skip), straight[skip : skip + 3])
    assert batches(folder, 1, seed=4)[0]["perm_mask"].tobytes() != straight[0]["perm_mask"].tobytes()


def test_parts_and_workers_share_a_step(folder):
    whole = batches(folder, 4)
    for parts, workers in ((2, 1), (2, 2)):
        shares = [
            batches(folder, 4 * parts, parts=parts, num_workers=workers, worker=worker) for worker in range(workers)
        ]
        size = 8 // (parts * workers)
        for number, batch in enumerate(whole):
            of_step = [share[number * parts + part] for part in range(parts) for share in shares]
            for share in of_step:
                assert_array_equal(share["is_reversed"], np.repeat([0, 1], size // 2))
            for name in batch:
                halves = [np.concatenate([share[name][half] for share in of_step])
                          for half in (slice(size // 2), slice(size // 2, None))]  # fmt: skip
                assert_array_equal(np.concatenate(halves), batch[name], err_msg=name)


def test_evaluation_is_one_pass_and_always_the_same(folder):
    rows = rows_in(folder, "eval")
    first = batches(folder, training=False)
    assert len(first) == rows // 8
    assert_equal(first, batches(folder, training=False))
    assert_equal(first[5:], batches(folder, training=False, skip_batches=5))
    assert int(read_permutations(str(folder), 8, False).cardinality()) == len(first)


def test_orders_are_uniform_and_permute_so_many_tokens(folder):
    """Of two masked tokens of a stretch, each is as likely the earlier; those of earlier stretches come before."""
    size = 32
    earlier, pairs = 0, 0
    for batch in batches(folder, 30, batch_size=32):
        for row in range(32):
            places = batch["masked_lm_positions"][row][batch["masked_lm_weights"][row] > 0]
            for one, other in itertools.combinations(places.tolist(), 2):
                if one < 32 <= other:
                    continue
                sees_ahead = not batch["perm_mask"][row, one, other]
                if one // size == other // size:
                    earlier, pairs = earlier + sees_ahead, pairs + 1
                else:
                    assert not sees_ahead
    # Pairs of a row are not independent: of its about 10 targets 20 pairs; a row's own share varies by 1/6 or so.
    assert abs(earlier / pairs - 0.5) < 4.5 * math.sqrt(1 / 36 / 960 + 0.25 / pairs)


def test_without_a_reused_part(build):
    folder = build(**PERMUTATION | {"reuse_length": 0})
    batch = batches(folder, 1, batch_size=4)[0]
    assert batch["masked_lm_weights"].sum() > 20
    # Nothing is hidden but what is masked, [CLS] or [SEP].
    assert batch["perm_mask"].any(axis=1).sum(axis=1).max() <= 13


@pytest.mark.parametrize(
    "options, message",
    [
        ({"batch_size": 6}, "a batch of 6 rows must be a multiple of the 4 streams"),
        ({"batch_size": 4, "parts": 4}, "4 devices or parts of a step cannot share a batch of 4"),
        ({"batch_size": 400_000}, "too few for a batch of 400000"),
        ({"expected": {"max_seq_length": 512}}, "needed is 512"),
        ({"patterns": {}}, "are of masked words"),
    ],
)
def test_what_cannot_be_read_is_said(build, options, message):
    folder = build(**options.get("patterns", PERMUTATION))
    with refused(message):
        read_permutations(**{"batch_size": 8, "training": True} | options | {"patterns": str(folder)})

"""XLNet's rows: what a record holds, and the random rules behind it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.refusals import refused
from tests.tfrecords.conftest import features_of
from tfrecords.base import files
from tfrecords.building.settings import BuildSettings
from tfrecords.examples.masking import MaskingRule, MaskingVocabulary
from tfrecords.examples.permutation import document_end_id, lay_out_steps, make_streams, sample_spans
from tfrecords.examples.randomness import derive
from tfrecords.reader import read_examples

PERMUTATION = {"objective": "permutation", "max_predictions_per_seq": None, "streams": 4, "chunk_megabytes": 0.1}
FEATURES = ("input", "target", "is_masked", "seg_id")


def rows_of(path):
    """The features of a file's records: int [records, values] by name."""
    records = features_of(path)
    return {name: np.array([record[name] for record in records]) for name in (*FEATURES, "label")}


@pytest.fixture(scope="module")
def folder(build):
    return build(**PERMUTATION)


@pytest.fixture(scope="module")
def of_files(folder):
    return [rows_of(path) for path in sorted(folder.glob("train-*"))]


def test_rows_are_reused_part_a_sep_b_sep_cls(of_files, tokenizer):
    assert len(of_files) == 4
    for rows in of_files:
        assert {name: values.shape[1] for name, values in rows.items()} == dict.fromkeys(FEATURES, 64) | {"label": 1}
        ids, segments = rows["input"], rows["seg_id"]
        assert (ids[:, -1] == tokenizer.cls_id).all() and (ids[:, -2] == tokenizer.sep_id).all()
        for row, of_row in zip(ids, segments):
            (first,) = np.flatnonzero(row[:-2] == tokenizer.sep_id)
            assert 32 < first < 61
            assert_array_equal(of_row, np.repeat([0, 1, 2], [first + 1, 62 - first, 1]))
        assert set(rows["label"].ravel()) == {0, 1}
        shares = np.split(rows["is_masked"], [32], axis=1)
        assert all((share.sum(axis=1) == 5).all() for share in shares)


def test_a_row_goes_on_where_the_row_of_its_stream_ended(of_files):
    """A follows the reused part, and the next reused part is what A began with."""
    for rows in of_files:
        streams = rows["input"].reshape(-1, 4, 64).swapaxes(0, 1)
        segments = rows["seg_id"].reshape(-1, 4, 64).swapaxes(0, 1)
        for ids, of_ids in zip(streams, segments):
            texts = np.concatenate(ids[:, :32])
            for step, row in enumerate(ids[:-1]):
                length = min(np.argmax(of_ids[step] == 1) - 1 - 32, 32)
                assert_array_equal(row[32 : 32 + length], texts[32 * (step + 1) :][:length])


def test_labels_are_even_and_say_whether_b_follows_a(of_files):
    labels = np.concatenate([rows["label"].ravel() for rows in of_files])
    # A stream's row whose stretch has no cut has label 0 always: fewer than half are 1.
    assert 0.25 < labels.mean() < 0.5
    for rows in of_files:
        streams = rows["input"].reshape(-1, 4, 64)[:, :, :32]
        for number, (ids, label) in enumerate(zip(rows["input"], rows["label"].ravel())):
            step, stream = divmod(number, 4)
            if not label or step + 3 > len(streams):
                continue
            ahead = streams[step + 1 : step + 4, stream].ravel()
            first = np.argmax(ids == 3)
            a, b = ids[32:first], ids[first + 1 : -2]
            # B begins where A ended before it was cut: some tokens behind, in the order of the text.
            text = ahead.tobytes()
            assert a.tobytes() in text
            if len(b) <= 29 and len(ahead) == 96:
                assert b[: min(len(b), 3)].tobytes() in text


def test_the_manifest_says_permutation_and_of_masked_records_nothing_new(folder, build):
    manifest = files.read_json(folder / "manifest.json")
    kept = {name: manifest[name] for name in ("objective", "reuse_length", "streams", "pair_task")}
    assert kept == dict(objective="permutation", reuse_length=32, streams=4, pair_task="none")
    assert (manifest["max_predictions_per_seq"], manifest["max_ngram"], manifest["whole_words"]) == (10, 5, False)
    assert "objective" not in files.read_json(build() / "manifest.json")
    with refused("for --objective=permutation"):
        read_examples(folder, 4, training=True)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"masking": "dynamic"}, "--masking=dynamic is for --objective=masked"),
        ({"pair_task": "sop"}, "--pair_task=sop is for --objective=masked"),
        ({"reuse_length": 60}, "--reuse_length=60 must be at most 59"),
        ({"streams": 3}, "--streams=3 must be even"),
        *(
            ({"objective": "masked", name: value}, f"--{name}={value} is for --objective=permutation")
            for name, value in {"reuse_length": 5, "streams": 4}.items()
        ),
        ({"max_predictions_per_seq": 64, "reuse_length": 8}, "puts 32 predictions into 8 tokens"),
    ],
)
def test_impossible_settings_are_named(wrong, message):
    with refused(message):
        BuildSettings(**{"max_seq_length": 64, "objective": "permutation"} | wrong)


def test_published_sizes_are_the_defaults():
    config = BuildSettings(objective="permutation")
    assert (config.max_seq_length, config.reuse_length, config.max_predictions_per_seq) == (512, 256, 85)
    assert config.predictions_of_parts == (43, 42)


def sample(starts, goal, key, backwards=False):
    return sample_spans(starts, backwards, goal, key, 0, MaskingRule(1, max_ngram=5).ngram_thresholds)


def spans_of(taken):
    """(begin, length) of each run; a span's context parts it from the next."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], taken.astype(int), [0]])))
    return edges[::2], edges[1::2] - edges[::2]


def test_spans_are_of_one_to_five_pieces_and_lie_anywhere_in_their_context():
    """Of long rows with few predictions: p(n) ~ 1/n, and a first span of n begins at 0 to 6 n - 1, evenly."""
    lengths, begins = [], []
    for key in derive(5, np.arange(2000)):
        begin, length = spans_of(sample(np.ones(600, bool), 40, key))
        lengths += length[:-1].tolist()  # The last is cut to the goal.
        begins.append((begin[0], length[0]))
    shares = np.bincount(lengths, minlength=6)[1:] / len(lengths)
    expected = 1 / np.arange(1, 6) / (1 / np.arange(1, 6)).sum()
    assert_allclose(shares, expected, atol=4.5 * np.sqrt(0.25 / len(lengths)))
    for size in range(1, 6):
        places = np.array([begin for begin, length in begins if length == size])
        counts = np.bincount(places, minlength=6 * size)
        assert len(counts) == 6 * size
        even = len(places) / len(counts)
        # Chi-square of 6 n - 1 degrees: mean 6 n - 1, variance twice that.
        assert ((counts - even) ** 2 / even).sum() < len(counts) + 5 * np.sqrt(2 * len(counts))


@given(
    starts=st.lists(st.booleans(), min_size=12, max_size=80), share=st.floats(0, 0.9), seed=st.integers(0, 10**6),
    backwards=st.booleans()
)  # fmt: skip
def test_the_goal_is_met_whatever_the_words(starts, share, seed, backwards):
    starts = np.array(starts)
    goal = int(share * len(starts))
    key = derive(seed, 1)
    taken = sample(starts, goal, key, backwards)
    assert taken.sum() == goal
    mirrored = sample(starts[::-1].copy(), goal, key, not backwards)
    assert_array_equal(taken, mirrored[::-1])


def test_spans_begin_with_a_word_and_count_pieces():
    starts = np.arange(900) % 3 == 0
    for key in derive(7, np.arange(50)):
        begins, lengths = spans_of(sample(starts, 30, key))
        assert (begins % 3 == 0).all() and set(lengths) <= {1, 2, 3, 4, 5}


def test_documents_end_with_a_piece_where_the_vocabulary_has_one(tokenizer):
    assert document_end_id(tokenizer) is None
    config = BuildSettings(objective="permutation", max_seq_length=16, streams=2)
    ids, splits, documents = np.arange(10, 40, dtype=np.int32), np.array([0, 10, 20, 30]), np.array([0, 1, 3])
    plain = make_streams(config, None, ids, splits, documents)
    assert_array_equal(plain.ids, [ids, ids[::-1]])
    assert_array_equal(np.flatnonzero(plain.begins[0]), [0, 10, 20])
    assert_array_equal(np.flatnonzero(plain.begins[1][1:]) + 1, [10, 20])
    ended = make_streams(config, 7, ids, splits, documents)
    assert_array_equal(np.flatnonzero(ended.ids[0] == 7), [10, 31])
    assert_array_equal(np.flatnonzero(ended.begins[0]), [0, 10, 11, 21, 31])


def test_without_a_reused_part_rows_follow_each_other(tokenizer):
    config = BuildSettings(objective="permutation", max_seq_length=16, reuse_length=0)
    ids = np.arange(100, 300, dtype=np.int32)
    streams = make_streams(config, None, ids, np.arange(0, 201, 10), np.array([0, 20]))
    rows = lay_out_steps(config, MaskingVocabulary.of(tokenizer), streams, derive(1), 0, 30)
    assert_array_equal(rows.input[::2, 0], 100 + 13 * np.arange(len(rows.input) // 2))
    assert 24 < len(rows.input) < 32 and set(rows.is_masked.sum(axis=1)) == {2}

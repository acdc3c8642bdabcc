import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tests.refusals import refused
from tests.tfrecords.conftest import features_of
from tfrecords.building.settings import BuildSettings
from tfrecords.examples.masking import MaskingVocabulary
from tfrecords.examples.records import encode_examples, encode_records, lay_out, plan_examples

CLS, SEP, MASK = 2, 3, 4
VOCABULARY = MaskingVocabulary(CLS, SEP, MASK, np.arange(300) % 2 == 0, np.arange(5, 300, dtype=np.int32))


def tokenized(seed=0, documents=6, sentences=8):
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, 15, documents * sentences)
    ids = generator.integers(5, 300, lengths.sum()).astype(np.int32)
    splits = np.concatenate([[0], np.cumsum(lengths)])
    return ids, splits, np.arange(documents + 1) * sentences, np.arange(documents)


def build_examples(config, vocabulary=VOCABULARY, documents=None, copy=0):
    plan = plan_examples(config, vocabulary, *(documents or tokenized()), copy)
    return lay_out(config, vocabulary, plan, np.arange(len(plan.keys)))


@pytest.fixture
def written(tmp_path):
    """Writes the examples of a batch; returns the file's path."""

    def write(config, vocabulary, batch):
        path = tmp_path / "a.tfrecord"
        path.write_bytes(encode_examples(config, vocabulary, batch))
        return str(path)

    return write


@given(st.integers(0, 10**6), st.integers(0, 5), st.integers(1, 300))
def test_bytes_are_those_of_tensorflow(tmp_path_factory, seed, examples, width):
    generator = np.random.default_rng(seed)
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    whole = generator.integers(0, 2**31, (examples, width)) >> generator.integers(0, 31, (examples, width))
    whole = whole.astype(np.int32)
    weights, sizes = generator.random((examples, 3)).astype(np.float32), generator.integers(0, width + 1, examples)
    features = {"some_ids": whole, "weights": weights, "flags": whole > 9}
    path.write_bytes(encode_records(features, {"some_ids": sizes, "weights": np.full(examples, 3), "flags": sizes}))
    assert features_of(path) == [
        {"some_ids": ids[:size].tolist(), "weights": of_row.tolist(), "flags": (ids[:size] > 9).tolist()}
        for ids, of_row, size in zip(whole, weights, sizes)
    ]
    # TFRecordDataset checks both checksums of every record.
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        assert tf.train.Example.FromString(record).SerializeToString(deterministic=True) == record


def test_static_records_have_the_official_features(written):
    config = BuildSettings(max_seq_length=32, max_predictions_per_seq=5)
    batch = build_examples(config)
    records = features_of(written(config, VOCABULARY, batch))
    assert len(records) == len(batch.lengths) > 10
    # The specification of google-research/albert run_pretraining.py:391-410.
    official = dict.fromkeys(("input_ids", "input_mask", "segment_ids", "token_boundary"), (32, int))
    official |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), (5, int))
    official |= {"masked_lm_weights": (5, float), "next_sentence_labels": (1, int)}
    for features, length, expected in zip(records, batch.lengths, batch.input_ids):
        assert {name: (len(values), type(values[0])) for name, values in features.items()} == official
        assert features["input_mask"] == [1] * length + [0] * (32 - length)
        count, ids = int(sum(features["masked_lm_weights"])), np.array(features["input_ids"])
        ids[features["masked_lm_positions"][:count]] = features["masked_lm_ids"][:count]
        assert_array_equal(ids, expected)
        first, second = np.flatnonzero(ids == SEP)
        assert ids[0] == CLS and second == length - 1
        assert features["segment_ids"] == [int(first < i <= second) for i in range(32)]
        boundary = (np.isin(ids, [CLS, SEP]) | VOCABULARY.word_starts[ids]) & (np.arange(32) < length)
        assert_array_equal(features["token_boundary"], boundary)


@pytest.mark.parametrize("input_format", ["full-sentences", "doc-sentences"])
def test_single_segment_formats(input_format):
    config = BuildSettings(max_seq_length=40, input_format=input_format, pair_task="none", short_seq_prob=0.0)
    ids, _, _, numbers = tokenized()
    batch = build_examples(config)
    texts, inner = [], 0
    for row, length in zip(batch.input_ids, batch.lengths):
        assert row[0] == CLS and row[length - 1] == SEP != row[length - 2]
        texts.append(row[1 : length - 1])
        inner += (texts[-1] == SEP).sum()
    joined = np.concatenate(texts)
    assert_array_equal(joined[joined != SEP], ids)
    assert (batch.second_starts == batch.lengths).all()
    assert inner == 0 if input_format == "doc-sentences" else 0 < inner <= len(numbers) - 1


def test_copies_differ_and_documents_do_not_depend_on_their_batch():
    config = BuildSettings(max_seq_length=32)
    ids, sentence_splits, document_splits, numbers = tokenized()
    first, again, other = (build_examples(config, copy=copy) for copy in (0, 0, 1))
    assert_array_equal(first.input_ids, again.input_ids)
    assert not np.array_equal(first.keys, other.keys)
    tail = build_examples(config, documents=(ids, sentence_splits, document_splits[3:], numbers[3:]))
    assert_array_equal(tail.input_ids, first.input_ids[-len(tail.input_ids) :])
    assert_array_equal(tail.keys, first.keys[-len(tail.keys) :])


@pytest.mark.parametrize(
    "wrong",
    [
        {"masking": "both"},
        {"pair_task": "rop"},
        {"input_format": "lines"},
        {"max_seq_length": 4},
        {"max_predictions_per_seq": 0},
        {"max_predictions_per_seq": 600},
        {"masked_lm_prob": 1.5},
        {"dupe_factor": 0},
        {"input_format": "full-sentences"},
        {"seed": 99999999999999999999},
    ],
)
def test_wrong_settings_are_named(wrong):
    with refused(next(iter(wrong))):
        BuildSettings(**wrong)


@pytest.mark.parametrize(
    "length, rate, most", [(512, 0.15, 77), (128, 0.15, 20), (30, 0.1, 3), (64, 0.0, 1), (8, 1.0, 8)]
)
def test_predictions_follow_from_length_and_rate(length, rate, most):
    settings = {"max_seq_length": length, "masked_lm_prob": rate}
    assert BuildSettings(**settings).max_predictions_per_seq == most


# RoBERTa's: `<s>` is 0, padding 1, two separators stand between two texts, and there is one segment.
ROBERTA = MaskingVocabulary(0, 2, 4, VOCABULARY.word_starts, VOCABULARY.ordinary_ids, 1, 2, 0)


@pytest.mark.parametrize("input_format", ["segment-pair", "sentence-pair", "full-sentences", "doc-sentences"])
def test_rows_of_roberta_in_all_formats(input_format, written):
    is_pair = input_format.endswith("pair")
    config = BuildSettings(max_seq_length=40, input_format=input_format, pair_task="nsp" if is_pair else "none")
    batch = build_examples(config, ROBERTA, tokenized(documents=20))
    for row, length, second in zip(batch.input_ids, batch.lengths, batch.second_starts):
        assert row[0] == 0 and row[length - 1] == 2 and length <= 40
        assert (row[length:] == 1).all()
        doubled = np.flatnonzero((row[:-1] == 2) & (row[1:] == 2))
        assert doubled.tolist() == ([second - 2] if is_pair else [])
    assert input_format == "sentence-pair" or batch.lengths.max() >= 38
    assert not any(any(row["segment_ids"]) for row in features_of(written(config, ROBERTA, batch)))

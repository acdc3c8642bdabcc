import itertools
import json
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_array_equal, assert_equal

from tests.refusals import refused
from tests.tfrecords.conftest import features_of
from tfrecords import inspect_examples
from tfrecords.reader import read_examples, read_manifest
from tfrecords.reading.manifest import find_records
from tfrecords.tokenizers.loading import load_tokenizer

WIDTHS = {"input_ids": 64, "input_mask": 64, "segment_ids": 64, "next_sentence_labels": 1}
WIDTHS |= dict.fromkeys(("masked_lm_positions", "masked_lm_ids", "masked_lm_weights"), 10)


def batches(patterns, count=None, batch_size=16, training=True, **options):
    dataset = read_examples(patterns, batch_size, training, **options)
    return list(itertools.islice(dataset.as_numpy_iterator(), count))


def original_ids(features):
    """Returns input_ids with the masks undone."""
    ids = features["input_ids"].copy()
    rows, columns = np.nonzero(features["masked_lm_weights"])
    ids[rows, features["masked_lm_positions"][rows, columns]] = features["masked_lm_ids"][rows, columns]
    return ids


def rows_of(some_batches):
    return sorted(row.tobytes() for batch in some_batches for row in original_ids(batch))


def assert_named(shapes_and_types, rows):
    """The features are the official ones."""
    assert shapes_and_types == {
        name: ((rows, width), np.float32 if name == "masked_lm_weights" else np.int32) for name, width in WIDTHS.items()
    }


@pytest.mark.parametrize("masking", ["static", "dynamic"])
def test_evaluation_is_one_pass_in_order_and_fixed(build, masking):
    folder = build(masking=masking)
    first, again = (batches(str(folder), training=False) for _ in range(2))
    assert_equal(first, again)
    assert_named({name: (values.shape, values.dtype) for name, values in first[0].items()}, 16)
    total = read_manifest(folder)["splits"]["eval"]["examples"]
    assert sum(len(batch["input_ids"]) for batch in first) == total
    assert len(first[-1]["input_ids"]) == (total % 16 or 16)
    assert_equal(batches(str(folder), training=False, skip_batches=3), first[3:])


def test_training_is_deterministic_and_other_for_another_seed(build):
    folder = str(build(masking="dynamic"))
    dataset = read_examples(folder, 16, True, seed=1)
    spec = dataset.element_spec.items()
    assert_named({name: (tuple(one.shape), one.dtype.as_numpy_dtype) for name, one in spec}, 16)
    first = list(dataset.take(5).as_numpy_iterator())
    tf.random.set_seed(99)
    np.random.seed(7)  # noqa: NPY002
    random.seed(7)
    assert_equal(batches(folder, 5, seed=1), first)
    assert rows_of(batches(folder, 5, seed=2)) != rows_of(first)


def test_resumed_training_goes_on_exactly(build):
    # Packed rows of a second worker: several lanes, a window smaller than the epoch, a resumption in the third epoch.
    folder = str(build(masking="dynamic", chunk_megabytes=0.03, held_out_fraction=0.7))
    done = 5 * read_manifest(folder)["splits"]["train"]["examples"] // 2 // 32
    options = {"seed": 4, "shuffle_window": 100, "examples_per_row": 3, "num_workers": 2, "worker": 1}
    whole = batches(folder, done + 5, **options)
    assert_equal(batches(folder, 5, skip_batches=done, **options), whole[done:])


@pytest.mark.parametrize("masking", ["static", "dynamic"])
def test_an_epoch_holds_every_example_once_and_the_next_in_another_order(build, masking):
    folder = build(masking=masking, chunk_megabytes=0.03)
    total = read_manifest(folder)["splits"]["train"]["examples"]
    epochs = batches(str(folder), 2, batch_size=total, shuffle_window=200)
    assert rows_of(epochs[:1]) == rows_of(epochs[1:])
    in_order = [original_ids(epoch) for epoch in epochs]
    assert (in_order[0] != in_order[1]).any(axis=1).mean() > 0.9
    masks = [set(map(tuple, np.hstack([o, e["input_ids"]]).tolist())) for o, e in zip(in_order, epochs)]
    same = len(masks[0] & masks[1]) / total
    assert same == 1 if masking == "static" else same < 0.02


def test_workers_share_what_one_would_read(build):
    # Four lanes, which three workers cannot part among them (test_lanes.py has two). The epoch ends within.
    folder = str(build(masking="dynamic", chunk_megabytes=0.03))
    steps = 3 + read_manifest(folder)["splits"]["train"]["examples"] // 96
    alone = batches(folder, steps, batch_size=96, seed=5)
    shared = [batches(folder, steps, batch_size=32, seed=5, num_workers=3, worker=worker) for worker in range(3)]
    for worker, own in enumerate(shared):
        assert_equal(own, [{name: values[worker::3] for name, values in batch.items()} for batch in alone])


@pytest.mark.parametrize("masking", ["static", "dynamic"])
def test_packing_keeps_every_example_whole_and_apart(build, masking):
    folder = str(build(masking=masking, short_seq_prob=1.0, input_format="doc-sentences", pair_task="none"))
    plain = batches(folder, training=False)
    packed = batches(folder, training=False, examples_per_row=4, row_multiple=3)
    for batch, apart in zip(packed, plain, strict=True):
        found = [example for row in range(len(batch["input_ids"])) for example in unpack(batch, row)]
        expected = [
            (ids[: mask.sum()].tolist(), int(label[0]))
            for ids, mask, label in zip(original_ids(apart), apart["input_mask"], apart["next_sentence_labels"])
        ]
        assert sorted(found) == sorted(expected)
        assert len(batch["input_ids"]) % 3 == 0 or len(batch["input_ids"]) == len(apart["input_ids"])
        for name in ("masked_lm_ids", "masked_lm_weights"):
            assert batch[name].sum() == apart[name].sum()
        # Of static records nobody knows which share of their tokens is predicted.
        slots = 4 * apart["masked_lm_ids"].shape[1]
        assert (batch["masked_lm_ids"].shape[1] < slots) == (masking == "dynamic")
    padding = [1 - np.concatenate([b["input_mask"] for b in some]).mean() for some in (plain, packed)]
    assert padding[1] < 0.7 * padding[0]


def unpack(batch, row):
    """Yields (ids without masks, label) of every example in a packed row, and checks the row's other features."""
    numbers, ids = batch["sequence_ids"][row], original_ids(batch)[row]
    assert_array_equal(numbers > 0, batch["input_mask"][row] > 0)
    assert (np.diff(numbers[numbers > 0]) >= 0).all()
    for k in range(int(batch["pair_weights"][row].sum())):
        (where,) = np.nonzero(numbers == k + 1)
        assert where[0] == batch["sequence_starts"][row, k]
        assert batch["position_ids"][row, where].tolist() == list(range(len(where)))
        assert ids[where[0]] == 2
        assert batch["segment_ids"][row, where[0]] == 0
        yield ids[where].tolist(), int(batch["next_sentence_labels"][row, k])


def test_folder_glob_and_split(build):
    folder = build()
    train = find_records(folder, "train")
    assert [path.name for path in train] == ["train-00000-of-00001.tfrecord"]
    assert find_records(f"{folder}/*.tfrecord*", "train") == train
    assert find_records(f"{folder}/*.tfrecord*", "eval") != train
    # Named outright, a file is what was asked for.
    assert find_records(f"{folder}/eval-*", "train") == find_records(folder, "eval")


def test_a_folder_without_held_out_records_is_not_evaluated_on(build):
    folder = build(held_out_fraction=0)
    for patterns in (folder, f"{build()},{folder}"):
        with refused(f"'{folder}' holds no eval records.*--held_out_fraction"):
            read_examples(patterns, 4, False)
    assert find_records(f"{folder}/train-*", "eval") == find_records(folder, "train")


def test_two_folders_of_one_kind(build):
    total = sum(read_manifest(build(seed=s))["splits"]["eval"]["examples"] for s in (1, 2))
    both = batches(f"{build(seed=1)},{build(seed=2)}", training=False)
    assert sum(len(batch["input_ids"]) for batch in both) == total


def cut(path, size):
    path.write_bytes(path.read_bytes()[:-size])


def interrupt(folder):
    (folder / "manifest.json").unlink()
    (folder / ".parts").mkdir()


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda folder: cut(next(folder.glob("train-00001*")), 100), "cut off"),
        (lambda folder: next(folder.glob("train-00001*")).unlink(), r"train-00001.*missing"),
        (interrupt, "interrupted"),
    ],
    ids=["cut off", "a file is missing", "interrupted"],
)
def test_a_folder_that_is_not_whole_is_refused(build, tmp_path, damage, message):
    damage(shutil.copytree(build(chunk_megabytes=0.1), tmp_path / "data"))
    with refused(message):
        read_examples(str(tmp_path / "data"), 4, True)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"patterns": ""}, "record file"),
        ({"patterns": "nowhere"}, "record file"),
        ({"patterns": "nowhere/*.tfrecord"}, "record file"),
        ({"expected": {"max_seq_length": 128}}, "max_seq_length 64, needed is 128"),
        ({"expected": {"tokenizer_sha256": "0"}}, "tokenizer_sha256"),
    ],
)
def test_what_cannot_be_read_is_named(build, options, message):
    with refused(message):
        read_examples(**{"patterns": str(build()), "batch_size": 4, "training": True} | options)


@pytest.mark.parametrize("other", [{"masked_lm_prob": 0.3}, {"max_ngram": 1}, {"whole_words": False}])
def test_folders_of_other_lengths_or_dynamic_masks_are_read_apart(build, tmp_path, other):
    dynamic = build(masking="dynamic")
    folder = shutil.copytree(dynamic, tmp_path / "data")
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | other))
    with refused(f"{next(iter(other))}.*read them apart"):
        read_examples(f"{dynamic},{folder}", 4, True)
    with refused(r"max_seq_length.*read them apart"):
        read_examples(f"{build()},{build(max_seq_length=128)}", 4, True)


def test_words_begin_where_google_research_albert_has_them(shared):
    tokenizer = load_tokenizer(shared / "data/spm/30k-clean.model")
    for row in features_of(str(shared / "gold/official_records/sop_128.tfrecord")):
        ids = np.array(row["input_ids"])
        ids[row["masked_lm_positions"]] = np.where(row["masked_lm_weights"], row["masked_lm_ids"], ids[0])
        ours = (np.isin(ids, [2, 3]) | tokenizer.word_starts[ids]) & (np.array(row["input_mask"]) > 0)
        assert_array_equal(ours, np.array(row["token_boundary"]) == 1)


def test_examples_are_shown_and_counted(build, capsys):
    inspect_examples.main(inspect_examples.InspectSettings(input=str(build()), examples=2, sample=0))
    said = capsys.readouterr().out
    assert said.count("[CLS]") == said.count("\n  label ") == 2 and "-> [MASK]}" in said
    train = read_manifest(build())["splits"]["train"]
    total, tokens, share = train["examples"], train["tokens"], train["label_1"] / train["examples"]
    assert f"{total:,} of {total:,} train examples: {tokens:,} tokens ({tokens / total:.1f} of 64" in said
    assert f"{share:.2%} have label 1" in said
    inspect_examples.main(inspect_examples.InspectSettings(input=str(build()), examples=0, sample=7))
    assert f"\n7 of {total:,} train examples" in "\n" + capsys.readouterr().out

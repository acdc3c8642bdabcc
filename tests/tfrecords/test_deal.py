"""Which shard and which split a document falls to."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.tfrecords.conftest import SMALL_CHUNKS, contents
from tfrecords import builder, deal
from tfrecords.build_settings import BuildSettings
from tfrecords.deal import Deal, hash_texts


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.3, 0.9])
def test_held_out_share_is_as_asked_and_hangs_on_the_document_alone(fraction):
    hashes = hash_texts(str(number).encode() for number in range(20_000))
    chosen = Deal(1, 8, 2, fraction).shard_of(hashes) >= 8
    assert abs(chosen.mean() - fraction) < 4.5 * np.sqrt(fraction * (1 - fraction) / 20_000)
    assert (
        Deal(1, 8, 2, fraction).shard_of(hashes[777:999]) == Deal(1, 8, 2, fraction).shard_of(hashes)[777:999]
    ).all()
    assert ((Deal(2, 8, 2, fraction).shard_of(hashes) >= 8) != chosen).any()


@pytest.mark.parametrize("seed", range(12))
def test_of_two_documents_one_is_held_out(tokenizer, tmp_path, seed):
    (tmp_path / "a.txt").write_text("one.\ntwo.\n\nthree.\nfour.")
    config = BuildSettings(max_seq_length=64, seed=seed, held_out_fraction=[0.01, 0.5, 0.99][seed % 3])
    splits = builder.build(str(tmp_path / "a.txt"), tmp_path / "data", tokenizer, config, 1, False)["splits"]
    assert splits["train"]["examples"] == splits["eval"]["examples"] == 1


def test_one_document_a_file_is_one_stream(tokenizer, tmp_path):
    for number in range(400):
        (tmp_path / f"{number:03d}.txt").write_text("\n".join(f"Article {number} line {n}." for n in range(12)))
    for task, input_format in (("nsp", "segment-pair"), ("none", "full-sentences")):
        config = BuildSettings(max_seq_length=128, pair_task=task, input_format=input_format)
        manifest = builder.build(f"{tmp_path}/*.txt", tmp_path / task, tokenizer, config, 2, False)
        assert [len(split["files"]) for split in manifest["splits"].values()] == [1, 1]
        if task == "nsp":
            assert 0.45 < manifest["splits"]["train"]["label_1"] / manifest["splits"]["train"]["examples"] < 0.6
    (path,) = (tmp_path / "none").glob("train-*")
    seps = 0
    for record in tf.data.TFRecordDataset(str(path)).take(50):
        ids = tf.train.Example.FromString(record.numpy()).features.feature["input_ids"].int64_list.value
        seps += list(ids).count(tokenizer.sep_id) > 1
    assert seps > 25


def test_many_shards_are_dealt_in_two_rounds(one_worker, corpus_file, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(deal, "FAN_OUT", 3)
    builder.build(str(corpus_file), tmp_path / "data", tokenizer, SMALL_CHUNKS, workers=1, overwrite=False)
    # The pieces are larger in the list of inputs only.
    ours, theirs = contents(tmp_path / "data"), contents(one_worker)
    records = {name for name in theirs if ".tfrecord" in name}
    assert records and all(ours[name] == theirs[name] for name in records)
    ours, theirs = (json.loads(found["manifest.json"])["splits"] for found in (ours, theirs))
    assert ours == theirs


def test_equal_documents_do_not_fill_one_shard():
    hashes = np.zeros(10_000, np.int64)
    counts = np.bincount(Deal(1, 10, 0, 0.0).shard_of(hashes), minlength=10)
    assert counts.min() > 800


def test_every_shard_is_a_fair_sample(tokenizer, tmp_path):
    words = ["qqqq"] * 1500 + ["zzzz"] * 1500
    rows = [json.dumps({"text": f"{word} {n} one.\nAnd two.\nAnd three."}) for n, word in enumerate(words)]
    (tmp_path / "sorted.jsonl").write_text("\n".join(rows))
    config = BuildSettings(max_seq_length=64, masking="dynamic", held_out_fraction=0, chunk_megabytes=0.02)
    builder.build(str(tmp_path / "sorted.jsonl"), tmp_path / "data", tokenizer, config, 1, False)
    first = set(tokenizer.encode("qqqq")) - set(tokenizer.encode("zzzz"))
    shares = []
    for path in (tmp_path / "data").glob("train-*"):
        found = [
            bool(first & set(tf.train.Example.FromString(r.numpy()).features.feature["input_ids"].int64_list.value))
            for r in tf.data.TFRecordDataset(str(path))
        ]
        shares.append(np.mean(found) - 0.5)
        assert abs(shares[-1]) < 4.5 * np.sqrt(0.25 / len(found))
    assert len(shares) > 5


def test_the_size_of_a_shard_grows_with_the_corpus():
    config = BuildSettings()
    sizes = {text: config.for_corpus(text).chunk_megabytes for text in (0, 10**6, 8 * 10**9, 10**10, 10**12, 10**14)}
    assert list(sizes.values()) == [8, 8, 8, 16, 160, 160]
    large = Deal.of(config.for_corpus(10**12), 10**12)
    assert 5500 < large.train < 6000 and 600 < large.eval < 650
    assert large.groups <= 256

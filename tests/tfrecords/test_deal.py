"""Which shard and which split a document falls to."""

import json

import numpy as np
import pytest

from tests.tfrecords.batches import features_of
from tests.tfrecords.conftest import build_text
from tfrecords.building.deal import Deal, hash_texts
from tfrecords.building.settings import BuildSettings


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.3, 0.9])
def test_held_out_share_is_as_asked_and_hangs_on_the_document_alone(fraction):
    hashes = hash_texts(str(number).encode() for number in range(20_000))
    deal = Deal(1, 8, 2, fraction)
    chosen = deal.shard_of(hashes) >= 8
    assert abs(chosen.mean() - fraction) < 4.5 * np.sqrt(fraction * (1 - fraction) / 20_000)
    assert (deal.shard_of(hashes[777:999]) == deal.shard_of(hashes)[777:999]).all()
    assert ((Deal(2, 8, 2, fraction).shard_of(hashes) >= 8) != chosen).any()


def test_equal_documents_do_not_fill_one_shard():
    hashes = np.zeros(10_000, np.int64)
    counts = np.bincount(Deal(1, 10, 0, 0.0).shard_of(hashes), minlength=10)
    assert counts.min() > 800


def test_every_shard_is_a_fair_sample(tokenizer, tmp_path):
    words = ["qqqq"] * 1500 + ["zzzz"] * 1500
    text = "\n".join(json.dumps({"text": f"{word} {n} one.\nAnd two.\nAnd three."}) for n, word in enumerate(words))
    # Each row is a whole document: cut short, it could lose the word.
    rows = {"pair_task": "none", "input_format": "doc-sentences", "masking": "dynamic", "short_seq_prob": 0.0}
    build_text(tmp_path, {"sorted.jsonl": text}, tokenizer, held_out_fraction=0, chunk_megabytes=0.02, **rows)
    first = set(tokenizer.encode("qqqq")) - set(tokenizer.encode("zzzz"))
    paths = list((tmp_path / "data").glob("train-*"))
    assert len(paths) > 5
    for path in paths:
        found = [bool(first & set(row["input_ids"])) for row in features_of(path)]
        assert abs(np.mean(found) - 0.5) < 4.5 * np.sqrt(0.25 / len(found))


def test_the_size_of_a_shard_grows_with_the_corpus():
    config = BuildSettings()
    sizes = {text: config.for_corpus(text).chunk_megabytes for text in (0, 10**6, 8 * 10**9, 10**10, 10**12, 10**14)}
    assert list(sizes.values()) == [8, 8, 8, 16, 160, 160]
    large = Deal.of(config.for_corpus(10**12), 10**12)
    assert 5500 < large.train < 6000 and 600 < large.eval < 650

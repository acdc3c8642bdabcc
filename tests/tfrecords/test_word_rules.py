"""What share of the tokens masks reach by each rule of what a word is."""

import random

import numpy as np
import pytest

from tests.tfrecords.conftest import build_text
from tests.tfrecords.statistics import original_ids
from tfrecords.masking import MaskingRule, MaskingVocabulary, mask_examples
from tfrecords.randomness import derive
from tfrecords.reader import read_examples
from tfrecords.tokenizers.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.training import train_bpe


@pytest.fixture(scope="module")
def chinese():
    """Sixty documents of ten sentences without blanks, and a byte-level BPE of them."""
    rng = random.Random(3)
    words = ["".join(chr(0x4E00 + rng.randrange(300)) for _ in range(rng.randrange(1, 4))) for _ in range(400)]
    lines = ["".join(rng.choices(words, k=9)) + "。" for _ in range(600)]
    text = "\n\n".join("\n".join(lines[at : at + 10]) for at in range(0, 600, 10))
    return text, ByteBPETokenizer(train_bpe(lines, 900, hard_vocab_limit=False))


def predicted(folder):
    """The share of tokens that are predicted, and how many examples have none."""
    batches = list(read_examples(str(folder), 64, training=False).as_numpy_iterator())
    weights = np.concatenate([batch["masked_lm_weights"] for batch in batches]) > 0
    return weights.sum() / sum(batch["input_mask"].sum() for batch in batches), int((~weights.any(axis=1)).sum())


@pytest.mark.parametrize("masking", ["static", "dynamic"])
def test_text_without_blanks_reaches_the_requested_share_by_script_alone(chinese, tmp_path, masking):
    for rule in ("script", "published"):
        manifest = build_text(tmp_path, *chinese, rule, masking=masking, word_rule=rule, held_out_fraction=0.2)
        assert manifest["word_rule"] == rule
    share, empty = predicted(tmp_path / "script")
    assert share == pytest.approx(0.15, abs=0.005) and empty == 0
    share, empty = predicted(tmp_path / "published")
    assert share < 0.05 and empty > 0


def test_a_reader_masks_by_the_rule_of_the_records(chinese, tmp_path):
    text, tokenizer = chinese
    build_text(tmp_path, text, tokenizer, masking="dynamic", word_rule="published", held_out_fraction=0.2)
    (batch,) = read_examples(str(tmp_path / "data"), 500, training=False, seed=7).as_numpy_iterator()
    ids = original_ids(batch).astype(np.int32)
    keys = derive(7, 3, np.arange(len(ids))[:, None], np.zeros(1, int)).ravel()
    rule, vocabulary = MaskingRule(10, 0.15, 3), MaskingVocabulary.of(tokenizer, "published")
    np.testing.assert_array_equal(vocabulary.words_begin(ids), tokenizer.word_starts[ids])
    masked, *_ = mask_examples(ids, batch["input_mask"].sum(axis=1), keys, rule, vocabulary)
    np.testing.assert_array_equal(batch["input_ids"], masked)

"""What share of the tokens masks reach: by script or by the published rule, and what a build says of it."""

import random
import re

import numpy as np
import pytest

from tests.tfrecords.conftest import build_text
from tests.tfrecords.tokenizers.twins import wordpiece
from tfrecords.base import files
from tfrecords.base.errors import UserError
from tfrecords.masking import MaskingRule, MaskingVocabulary, mask_examples
from tfrecords.randomness import derive
from tfrecords.reader import read_examples
from tfrecords.statistics import original_ids
from tfrecords.tokenizers.byte_bpe import ByteBPETokenizer
from tfrecords.tokenizers.training import train_bpe

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def chinese():
    """Sixty documents of ten sentences without blanks, and a byte-level BPE of them."""
    rng = random.Random(3)
    words = ["".join(chr(0x4E00 + rng.randrange(300)) for _ in range(rng.randrange(1, 4))) for _ in range(400)]
    lines = ["".join(rng.choices(words, k=9)) + "。" for _ in range(600)]
    text = "\n\n".join("\n".join(lines[at : at + 10]) for at in range(0, 600, 10))
    return text, ByteBPETokenizer(train_bpe(lines, 900, hard_vocab_limit=False))


def built(folder, text, tokenizer, **settings):
    return build_text(folder, text, tokenizer, **{"held_out_fraction": 0.2} | settings)


def predicted(folder):
    """The share of tokens that are predicted, and how many examples have none."""
    batches = list(read_examples(str(folder), 64, training=False).as_numpy_iterator())
    weights = np.concatenate([batch["masked_lm_weights"] for batch in batches]) > 0
    return weights.sum() / sum(batch["input_mask"].sum() for batch in batches), int((~weights.any(axis=1)).sum())


@pytest.mark.parametrize("masking", ["static", "dynamic"])
def test_text_without_blanks_reaches_the_requested_share(chinese, tmp_path, capsys, masking):
    manifest = built(tmp_path / "script", *chinese, masking=masking)
    share, empty = predicted(tmp_path / "script/data")
    assert share == pytest.approx(0.15, abs=0.005) and empty == 0
    assert manifest["word_rule"] == "script"
    assert "warning" not in capsys.readouterr().out
    manifest = built(tmp_path / "published", *chinese, masking=masking, word_rule="published")
    share, empty = predicted(tmp_path / "published/data")
    assert share < 0.05 and empty > 0
    assert "word_rule" not in manifest
    message = r"warning: (.*)% of the tokens are predicted, and in \d+% of the examples none.*add --nowhole_words"
    said = float(re.search(message, capsys.readouterr().out)[1])
    counts = manifest["splits"]["train"]
    assert said / 100 == pytest.approx(counts["sampled_predictions"] / counts["sampled_tokens"], abs=0.01)
    if masking == "static":
        # Those of the records themselves.
        held_out = manifest["splits"]["eval"]
        assert (held_out["sampled_examples"], held_out["sampled_tokens"]) == (held_out["examples"], held_out["tokens"])
        found = held_out["sampled_predictions"] / held_out["sampled_tokens"], held_out["sampled_unmasked"]
        assert found == (share, empty)


def english(word):
    """Documents of four sentences of eight words, and a WordPiece of single letters."""
    rng = random.Random(1)
    lines = [" ".join(word(rng) for _ in range(8)) for _ in range(240)]
    text = "\n\n".join("\n".join(lines[at : at + 4]) for at in range(0, 240, 4))
    return text, wordpiece(*LETTERS, *("##" + letter for letter in LETTERS))


@pytest.mark.parametrize(
    ("size", "settings", "message"),
    [
        (1, {"max_predictions_per_seq": 3}, "--max_predictions_per_seq=3 allows no more"),
        (1, {"masked_lm_prob": 0.02}, "tokens on average, and their share is rounded to whole tokens"),
        (20, {}, r"\d+% are in words that are longer than what may be masked of an example: add --nowhole_words"),
        (20, {"whole_words": False}, None),
        (1, {}, None),
        (1, {"masked_lm_prob": 0.0}, None),
    ],
)
def test_the_build_says_why_a_share_is_missed(tmp_path, capsys, size, settings, message):
    text = english(lambda rng: "".join(rng.choices(LETTERS, k=size)))
    built(tmp_path, *text, **settings)
    said = capsys.readouterr().out
    assert re.search(message, said) if message else "warning" not in said
    # A folder that is complete says it again.
    built(tmp_path, *text, **settings)
    assert ("warning" in capsys.readouterr().out) is bool(message)


def test_words_that_are_never_predicted_are_counted_though_the_share_is_reached(tmp_path, capsys):
    text = english(lambda rng: "".join(rng.choices(LETTERS, k=rng.choice([1, 1, 1, 14]))))
    counts = built(tmp_path, *text)["splits"]["train"]
    assert 0.5 < counts["sampled_in_long_words"] / counts["sampled_tokens"] < 0.9
    assert "and are never predicted: add --nowhole_words" in capsys.readouterr().out


def test_folders_of_before_the_rule_was_noted_are_read_as_they_were(chinese, tmp_path):
    """Their manifest has no word_rule, as that of a folder built by the published one."""
    text, tokenizer = chinese
    manifest = built(tmp_path, text, tokenizer, masking="dynamic", word_rule="published")
    (batch,) = read_examples(str(tmp_path / "data"), 500, training=False, seed=7).as_numpy_iterator()
    ids = original_ids(batch).astype(np.int32)
    keys = derive(7, 3, np.arange(len(ids))[:, None], np.zeros(1, int)).ravel()
    rule, vocabulary = MaskingRule(10, 0.15, 3), MaskingVocabulary.of(tokenizer, "published")
    np.testing.assert_array_equal(vocabulary.words_begin(ids), tokenizer.word_starts[ids])
    masked, *_ = mask_examples(ids, batch["input_mask"].sum(axis=1), keys, rule, vocabulary)
    np.testing.assert_array_equal(batch["input_ids"], masked)
    with pytest.raises(UserError, match="built with word_rule 'published', now 'script'"):
        built(tmp_path, text, tokenizer, masking="dynamic")
    assert files.read_json(tmp_path / "data/manifest.json") == manifest

"""Compares the masked share of tokens, in a sample of each shard, with --masked_lm_prob."""

from typing import Any

import numpy as np

from tfrecords.build_settings import BuildSettings
from tfrecords.examples import Examples
from tfrecords.manifest import SPLITS
from tfrecords.masking import MaskingVocabulary, mask_examples

# Counts of the sample: examples, and examples without a predicted token; tokens, the budgets of predicted tokens,
# predicted tokens, and tokens in words that are longer than their example's budget.
COUNTS = (
    *("sampled_examples", "sampled_unmasked"),
    *("sampled_tokens", "sampled_budget", "sampled_predictions", "sampled_in_long_words"),
)
# No warning for a relative deviation from the requested share up to this, or this share of tokens in long words.
_TOLERANCE = 0.1


def count_masks(settings: BuildSettings, vocabulary: MaskingVocabulary, examples: Examples) -> dict[str, int]:
    """Masks examples and returns the counts named in COUNTS."""
    rule, lengths = settings.masking_rule, examples.lengths
    predicted = mask_examples(examples.input_ids, lengths, examples.keys, rule, vocabulary)[3]
    budgets = rule.budgets(lengths)
    present = np.arange(examples.input_ids.shape[1]) < lengths[:, None]
    begins = np.flatnonzero(vocabulary.words_or_ends_begin(examples.input_ids)[present])
    sizes = np.diff(begins, append=lengths.sum())
    in_long_words = sizes[sizes > np.repeat(budgets, lengths)[begins]].sum() if rule.whole_words else 0
    counts = len(lengths), np.sum(predicted == 0), lengths.sum(), budgets.sum(), predicted.sum(), in_long_words
    return dict(zip(COUNTS, map(int, counts)))


def describe_miss(manifest: dict[str, Any]) -> str | None:
    """Returns a warning with its cause if too few or too many tokens, or no long words, are masked; else None."""
    splits = [manifest["splits"][split] for split in SPLITS]
    examples, unmasked, tokens, budget, predicted, in_long = (
        sum(split.get(key, 0) for split in splits) for key in COUNTS
    )
    requested = manifest["masked_lm_prob"]
    if not tokens or not requested:
        return None
    fix = "add --nowhole_words, raise --max_seq_length"
    fix += ", or leave out --word_rule" if manifest.get("word_rule") is None else ", or train a larger vocabulary"
    if abs(predicted / tokens - requested) <= _TOLERANCE * requested:
        share = (
            f"{in_long / tokens:.1%} of the tokens are in words that are longer than what may be masked of an example"
        )
        return f"{share}, and are never predicted: {fix}" if in_long > _TOLERANCE * tokens else None
    if predicted < (1 - _TOLERANCE) * budget:
        why = f"{in_long / tokens:.0%} are in words that are longer than what may be masked of an example: {fix}"
    elif budget < requested * tokens and manifest["max_predictions_per_seq"] < requested * manifest["max_seq_length"]:
        why = f"--max_predictions_per_seq={manifest['max_predictions_per_seq']} allows no more"
    else:
        why = f"examples have {tokens / examples:.0f} tokens on average, and their share is rounded to whole tokens"
    none = f", and in {unmasked / examples:.0%} of the examples none" if unmasked else ""
    return (
        f"{predicted / tokens:.1%} of the tokens are predicted{none}; --masked_lm_prob={requested} requests "
        f"{requested:.1%}; {why}"
    )

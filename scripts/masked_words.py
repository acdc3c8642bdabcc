"""Rows of held-out text with a masked word in each, for the quickstart."""

import tfrecords.base.machine.quiet_tensorflow  # noqa: F401, I001  (first of all)

from pathlib import Path

from tfrecords.reader import read_examples
from tfrecords.reading.manifest import find_records
from tfrecords.tokenizers.loading import load_tokenizer


def masked_words(data: Path) -> tuple[list[str], list[str]]:
    """Returns rows of held-out text with a word masked in each, and these words."""
    tokenizer, texts, truths = load_tokenizer(data), [], []
    batch = next(read_examples([str(path) for path in find_records(data, "eval")], 64, False, 0).as_numpy_iterator())
    for row, ids in enumerate(batch["input_ids"].copy()):
        slots = batch["masked_lm_weights"][row] > 0
        ids[batch["masked_lm_positions"][row][slots]] = batch["masked_lm_ids"][row][slots]
        ids = ids[(batch["segment_ids"][row] == 0) & (batch["input_mask"][row] > 0)][1:-1].tolist()
        starts = [*tokenizer.word_starts[ids], True]
        words = {n: tokenizer.decode([ids[n]]) for n in range(1, len(ids) - 1) if starts[n] and starts[n + 1]}
        if places := [n for n, word in words.items() if len(word) > 3 and word.isalpha()] or [*words]:
            place = places[len(places) // 2]
            texts.append(f"{tokenizer.decode(ids[:place][-12:])} [MASK] {tokenizer.decode(ids[place + 1 :])}")
            truths.append(words[place])
    return texts, truths

"""What rows leave out of their texts is counted: against the same rows with room for everything."""

import numpy as np
import pytest

import albert_tf.answers
from albert_tf.tasks.race import RaceExample, RaceTask
from albert_tf.tasks.rows import store, text_rows
from albert_tf.tasks.tagging import TaggedExample, tagged_rows
from albert_tf.tasks.truncation import Truncation, truncation_line
from tfrecords.tokenizers.wordpiece import WordPieceTokenizer

SHORT, LONG = "a good film", "good film " * 20
TEXTS = [SHORT, LONG, ""]
TOKENIZER = WordPieceTokenizer("[PAD] [UNK] [CLS] [SEP] [MASK] a good film".replace(" ", "\n").encode())


MAKERS = {
    "texts": lambda limit: text_rows(TOKENIZER, [TEXTS], limit),
    "pairs": lambda limit: text_rows(TOKENIZER, [TEXTS, [LONG, SHORT, ""]], limit),
    "choices": lambda limit: RaceTask("").rows(
        [RaceExample("1", "high", text, (SHORT, "film", LONG, "a"), 0) for text in TEXTS],
        TOKENIZER,
        limit,
        training=True,
    ),
    "tags": lambda limit: tagged_rows(
        [TaggedExample(text.split(), [0] * len(text.split())) for text in TEXTS], TOKENIZER, limit, training=True
    ),
    "masks": lambda limit: albert_tf.answers._masked_rows(TOKENIZER, ["[MASK] " + text for text in TEXTS], limit),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_cut_is_counted(maker):
    whole, cut = (MAKERS[maker](limit) for limit in (200, 16))
    sizes, kept = (np.array([int(mask.sum()) for mask in rows.tokens["input_mask"]]) for rows in (whole, cut))
    assert whole.truncation.truncated_texts == whole.truncation.truncated_tokens == 0
    expected = Truncation(3, int((sizes > kept).sum()), whole.truncation.tokens, int((sizes - kept).sum()))
    assert cut.truncation == expected and expected.truncated_texts
    # [CLS] and [SEP] are no tokens of the texts.
    assert whole.truncation.tokens < sizes.sum()


def test_chunks_are_counted_together():
    rows = store(MAKERS["texts"](limit) for limit in (16, 200))
    assert rows.truncation == Truncation(6, 1, 2 * 43, 26)
    assert rows.truncation.shares() == {"truncated_texts": 1 / 6, "truncated_tokens": 26 / 86}
    assert truncation_line({"train": rows.truncation, "dev": Truncation()}) == (
        "truncated: train 16.67% of 6 texts (30.23% of their tokens), dev 0.00% of 0 texts (0.00% of their tokens)"
    )

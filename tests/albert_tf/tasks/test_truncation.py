"""What rows leave out of their texts is counted: against the same rows with room for everything."""

import numpy as np
import pytest

from albert_tf.loading import answers
from albert_tf.tasks.race import RaceExample, RaceTask
from albert_tf.tasks.rows import text_rows
from albert_tf.tasks.tagging import TaggedExample, tagged_rows
from tests.tfrecords.tokenizers.twins import wordpiece
from tfrecords.answers.texts import Truncation

SHORT, LONG = "a good film", "good film " * 20
TEXTS = [SHORT, LONG, ""]
TOKENIZER = wordpiece("a", "good", "film")


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
    "masks": lambda limit: answers._masked_rows(TOKENIZER, ["[MASK] " + text for text in TEXTS], limit),
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

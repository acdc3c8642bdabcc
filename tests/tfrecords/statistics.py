"""Counts lengths, masks and labels of examples, to compare with the rules that draw them."""

import numpy as np

LONGEST_RUN = 8


def original_ids(features):
    """Returns input_ids with the masks undone."""
    ids = features["input_ids"].copy()
    rows, columns = np.nonzero(features["masked_lm_weights"])
    ids[rows, features["masked_lm_positions"][rows, columns]] = features["masked_lm_ids"][rows, columns]
    return ids


def words_or_ends_begin(vocabulary, input_ids):
    """Whether each token begins a word, is [CLS] or [SEP], or follows [CLS] or [SEP]."""
    ends = (input_ids == vocabulary.cls_id) | (input_ids == vocabulary.sep_id)
    begins = vocabulary.words_begin(input_ids) | ends
    begins[:, 1:] |= ends[:, :-1]
    return begins

"""Counts lengths, masks and labels of examples, to compare with the rules that draw them."""

from typing import Any

import numpy as np

from tfrecords.masking import MaskingVocabulary
from tfrecords.tokenizers.base import Tokenizer

LONGEST_RUN = 8


class Statistics:
    """Counts of lengths, masks and labels in unpacked batches (numpy arrays, as from `reader.read_examples`)."""

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int, max_predictions: int):
        self._tokenizer, self._vocabulary = tokenizer, MaskingVocabulary.of(tokenizer)
        self.lengths = np.zeros(max_seq_length + 1, np.int64)
        self.predictions = np.zeros(max_predictions + 1, np.int64)
        # Index n: runs of n neighbouring predicted words; the last holds all longer ones.
        self.runs = np.zeros(LONGEST_RUN + 1, np.int64)
        self.masked = self.kept = self.replaced = self.labels = self.pairs = 0

    def update(self, features: dict[str, np.ndarray]) -> None:
        lengths = features["input_mask"].sum(axis=1)
        self.lengths += np.bincount(lengths, minlength=len(self.lengths))
        predicted = features["masked_lm_weights"] > 0
        self.predictions += np.bincount(predicted.sum(axis=1), minlength=len(self.predictions))
        now = np.take_along_axis(features["input_ids"], features["masked_lm_positions"], axis=1)[predicted]
        before = features["masked_lm_ids"][predicted]
        self.masked += int((now == self._tokenizer.mask_id).sum())
        self.kept += int((now == before).sum())
        self.replaced += int(((now != before) & (now != self._tokenizer.mask_id)).sum())
        self.labels += int(features["next_sentence_labels"].sum())
        self.pairs += int(self._are_pairs(features).sum())
        self._count_runs(original_ids(features), features["masked_lm_positions"], predicted)

    def _are_pairs(self, features: dict[str, np.ndarray]) -> np.ndarray:
        if self._tokenizer.second_segment_id:
            return features["segment_ids"].max(axis=1) > 0
        ids = features["input_ids"]
        return ((ids[:, 1:] == self._tokenizer.sep_id) & (ids[:, :-1] == self._tokenizer.sep_id)).any(axis=1)

    def _count_runs(self, ids: np.ndarray, positions: np.ndarray, predicted: np.ndarray) -> None:
        word = np.cumsum(words_or_ends_begin(self._vocabulary, ids), axis=1)
        # Word numbers of different rows are far apart, so that no run spans two rows.
        word += np.arange(len(ids))[:, None] * (2 * ids.shape[1])
        words = np.unique(np.take_along_axis(word, positions, axis=1)[predicted])
        starts = np.flatnonzero(np.diff(words, prepend=-2) != 1)
        runs = np.minimum(np.diff(starts, append=len(words)), LONGEST_RUN)
        self.runs += np.bincount(runs, minlength=len(self.runs))

    def summary(self) -> dict[str, Any]:
        examples = int(self.lengths.sum())
        tokens = int((self.lengths * np.arange(len(self.lengths))).sum())
        predictions = int((self.predictions * np.arange(len(self.predictions))).sum())
        return {
            "examples": examples,
            "tokens": tokens,
            "mean_length": tokens / max(examples, 1),
            "padding_share": 1 - tokens / max(examples * (len(self.lengths) - 1), 1),
            "predictions": predictions,
            "mask_rate": predictions / max(tokens, 1),
            "mask_share": self.masked / max(predictions, 1),
            "kept_share": self.kept / max(predictions, 1),
            "random_share": self.replaced / max(predictions, 1),
            "pair_share": self.pairs / max(examples, 1),
            "label_1_share": self.labels / max(examples, 1),
            "run_shares": (self.runs[1:] / max(self.runs.sum(), 1)).tolist(),
        }


def original_ids(features: dict[str, np.ndarray]) -> np.ndarray:
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

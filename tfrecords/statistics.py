"""Statistics of examples, and the share of unknown tokens in a corpus."""

import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfrecords import corpus, sections
from tfrecords.base.errors import UserError
from tfrecords.base.text_files import is_gzipped
from tfrecords.masking import MaskingVocabulary
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.words import SCRIPT

LONGEST_RUN = 8


class Statistics:
    """Counts of lengths, masks and labels in unpacked batches (numpy arrays, as from `reader.read_examples`)."""

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int, max_predictions: int, word_rule: str = SCRIPT):
        self._tokenizer, self._vocabulary = tokenizer, MaskingVocabulary.of(tokenizer, word_rule)
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
        word = np.cumsum(self._vocabulary.words_or_ends_begin(ids), axis=1)
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


def check_examples(features: dict[str, np.ndarray], tokenizer: Tokenizer) -> None:
    """Raises UserError for a batch with ids beyond the vocabulary, or with masks beyond a row's tokens."""
    ids = np.concatenate([features[name].ravel() for name in ("input_ids", "masked_lm_ids")])
    if len(wrong := ids[(ids < 0) | (ids >= tokenizer.vocab_size)]):
        raise UserError(
            f"an example has the id {wrong[0]}, and the tokenizer {tokenizer.vocab_size} pieces; name the tokenizer of "
            "the records with --tokenizer"
        )
    lengths, positions = features["input_mask"].sum(axis=1), features["masked_lm_positions"]
    is_beyond = (positions < 0) | (positions >= lengths[:, None])
    for row, slot in np.argwhere(is_beyond & (features["masked_lm_weights"] > 0)):
        raise UserError(
            f"an example of {lengths[row]} tokens masks position {positions[row, slot]}; build the records anew"
        )


def readable(features: dict[str, np.ndarray], row: int, tokenizer: Tokenizer) -> str:
    """Returns an example as text, with predicted tokens as {word -> input} and the label last."""
    ids = features["input_ids"][row][features["input_mask"][row] > 0]
    pieces = [tokenizer.id_to_piece(int(i)) for i in ids]
    for slot in np.flatnonzero(features["masked_lm_weights"][row]):
        position, label = features["masked_lm_positions"][row, slot], features["masked_lm_ids"][row, slot]
        pieces[position] = f"{{{tokenizer.id_to_piece(int(label))} -> {pieces[position]}}}"
    return f"{' '.join(pieces)}\n  label {features['next_sentence_labels'][row, 0]}"


# Number of evenly spaced samples of the corpus, and about how many bytes of text each has.
_PLACES, _BYTES = 16, 1 << 16


def unknown_share(paths: Sequence[str | os.PathLike], tokenizer: Tokenizer, text_field: str = "text") -> float:
    """Returns unknown tokens' share of a corpus sample, 0 to 1."""
    tokens = unknown = 0
    for section in _places(paths):
        for chunk in itertools.islice(sections.read_chunks(section, _BYTES), 1):
            texts = [text.decode() for text in corpus.read_texts(chunk, text_field) if isinstance(text, bytes)]
            ids, _ = tokenizer.encode_batch(texts)
            tokens += len(ids)
            unknown += int(np.count_nonzero(ids == tokenizer.unk_id))
    return unknown / max(tokens, 1)


def check_unknown_share(share: float, limit: float, tokenizer: Tokenizer) -> None:
    """Raises UserError if the share of unknown tokens exceeds `limit`."""
    if share > limit:
        raise UserError(
            f"{share:.0%} of the corpus's tokens are unknown to the tokenizer ({tokenizer.pieces[tokenizer.unk_id]}): "
            "it was made for another language or casing; train one on this text (python -m tfrecords.train_tokenizer), "
            "or --max_unknown_share=1 to build all the same"
        )


def _places(paths: Sequence[str | os.PathLike]) -> list[sections.Section]:
    places = {}
    for number in range(_PLACES):
        file, within = divmod(number * len(paths), _PLACES)
        path = str(paths[file])
        if is_gzipped(path):
            places[path, 0] = sections.Section(path)
            continue
        size = sections.size_of(path)
        start = size * within // _PLACES if size > _PLACES * _BYTES else within * _BYTES // len(paths)
        if start < size:
            places[path, start] = sections.Section(path, start, min(start + _BYTES, size))
    return list(places.values())

"""Chooses masked-language-model targets: n-grams of whole words, whole words, or tokens.

As in google-research/albert create_pretraining_data.py:426-598, words are tried in random order as the start of a span
of n words, p(n) ~ 1/n. A span is shortened to the targets still allowed, and taken if it overlaps no earlier one. 80 %
of the targets become [MASK], 10 % stay and 10 % become random pieces. Unlike there, spans end at [CLS] and [SEP], and
random pieces are never special.
"""

from dataclasses import dataclass

import numpy as np

from tfrecords.base.machine.compiled import compiled
from tfrecords.examples.randomness import below, draw, unit
from tfrecords.tokenizers.words import byte_table, unspaced_table, word_begins

# Where the draws for each purpose begin in an example's stream; positions are added.
ORDER, LENGTH, FATE, PIECE = (purpose << 20 for purpose in range(1, 5))
MASK_SHARE, KEEP_SHARE = 0.8, 0.1


@dataclass(frozen=True)
class MaskingRule:
    """What to mask: n-grams of words, single words (max_ngram=1), or tokens (whole_words=False)."""

    max_predictions: int
    probability: float = 0.15
    max_ngram: int = 3
    whole_words: bool = True

    def budgets(self, lengths: np.ndarray) -> np.ndarray:
        """Returns the maximum numbers of targets for example lengths: int [examples]."""
        if self.probability <= 0:
            return np.zeros(len(lengths), np.int64)
        # Half a token is rounded to even, as Python's round does.
        return np.clip(np.rint(lengths * self.probability).astype(np.int64), 1, self.max_predictions)

    @property
    def ngram_thresholds(self) -> np.ndarray:
        """Cumulative probabilities of spans of n words, p(n) ~ 1/n: float64 [max_ngram]."""
        weights = 1.0 / np.arange(1, self.max_ngram + 1)
        thresholds = np.cumsum(weights) / weights.sum()
        thresholds[-1] = 1.0
        return thresholds


@dataclass(frozen=True)
class MaskingVocabulary:
    """The tokenizer data that masking needs.

    word_starts: bool [vocab]. ordinary_ids: int32, without special ids. piece_bytes: from `words.byte_table`.
    """

    cls_id: int
    sep_id: int
    mask_id: int
    word_starts: np.ndarray
    ordinary_ids: np.ndarray
    pad_id: int = 0
    separators_between: int = 1
    second_segment_id: int = 1
    piece_bytes: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def of(cls, tokenizer) -> "MaskingVocabulary":
        ordinary = np.setdiff1d(np.arange(tokenizer.vocab_size, dtype=np.int32), tokenizer.special_ids)
        return cls(
            tokenizer.cls_id,
            tokenizer.sep_id,
            tokenizer.mask_id,
            tokenizer.word_starts,
            ordinary,
            tokenizer.pad_id,
            tokenizer.separators_between,
            tokenizer.second_segment_id,
            byte_table(tokenizer.piece_bytes),
        )

    @property
    def word_table(self) -> tuple[np.ndarray, ...]:
        nothing = np.zeros(0, np.uint8), np.zeros(len(self.word_starts) + 1, np.int64)
        return self.word_starts, *(self.piece_bytes or nothing), unspaced_table()

    def words_begin(self, input_ids: np.ndarray) -> np.ndarray:
        return _begin_words(np.ascontiguousarray(input_ids), *self.word_table)


@compiled
def _begin_words(input_ids, starts, data, splits, unspaced):
    begins = np.empty(input_ids.shape, np.bool_)
    for row in range(len(input_ids)):
        begins[row] = word_begins(input_ids[row], starts, data, splits, unspaced)
    return begins


def mask_examples(
    input_ids: np.ndarray, lengths: np.ndarray, keys: np.ndarray, rule: MaskingRule, vocabulary: MaskingVocabulary
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Masks a batch of examples, each by its own random stream.

    >>> from tfrecords.examples.randomness import derive
    >>> vocabulary = MaskingVocabulary(2, 3, 4, np.ones(20, bool), np.arange(5, 20, dtype=np.int32))
    >>> ids = np.array([[2, 10, 11, 12, 13, 3]], np.int32)
    >>> rule = MaskingRule(max_predictions=2, probability=0.5)
    >>> keys = derive(0, np.arange(1))
    >>> masked, positions, originals, counts = mask_examples(ids, np.array([6]), keys, rule, vocabulary)
    >>> bool((ids[0, positions[0]] == originals[0]).all()), counts.tolist()
    (True, [2])

    Returns (masked input_ids, positions of targets int32 [examples, predictions], their original ids, their number
    int32 [examples]); positions ascend, then zeros follow.
    """
    return _mask_rows(
        input_ids.copy(),
        lengths,
        keys,
        vocabulary.words_begin(input_ids) if rule.whole_words else np.ones(input_ids.shape, bool),
        vocabulary.ordinary_ids,
        (vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id),
        rule.max_predictions,
        rule.budgets(lengths),
        rule.ngram_thresholds,
    )


@compiled
def _mask_rows(input_ids, lengths, keys, starts, ordinary_ids, special, max_predictions, budgets, thresholds):
    cls_id, sep_id, mask_id = special
    examples = len(input_ids)
    positions = np.zeros((examples, max_predictions), np.int32)
    originals = np.zeros((examples, max_predictions), np.int32)
    counts = np.zeros(examples, np.int32)
    for row in range(examples):
        ids, key = input_ids[row, : lengths[row]], keys[row]
        word_begins, word_ends = _words(ids, starts[row], cls_id, sep_id)
        taken = _take_spans(word_begins, word_ends, len(ids), key, budgets[row], thresholds)
        for position in range(len(ids)):
            if taken[position]:
                positions[row, counts[row]] = position
                originals[row, counts[row]] = ids[position]
                counts[row] += 1
                fate = unit(draw(key, FATE + position))
                if fate < MASK_SHARE:
                    ids[position] = mask_id
                elif fate >= MASK_SHARE + KEEP_SHARE:
                    ids[position] = ordinary_ids[below(draw(key, PIECE + position), len(ordinary_ids))]
    return input_ids, positions, originals, counts


@compiled
def _words(ids, starts, cls_id, sep_id):
    begins, ends = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
    count, inside = 0, False
    for position in range(len(ids)):
        if ids[position] == cls_id or ids[position] == sep_id:
            inside = False
            continue
        if starts[position] or not inside:
            begins[count] = position
            count += 1
            inside = True
        ends[count - 1] = position + 1
    return begins[:count], ends[:count]


@compiled
def _take_spans(begins, ends, length, key, budget, thresholds):
    order = np.empty(len(begins), np.uint64)
    for word in range(len(begins)):
        order[word] = draw(key, ORDER + begins[word])
    taken = np.zeros(length, np.bool_)
    left = budget
    for word in np.argsort(order):
        if left == 0:
            break
        begin = begins[word]
        uniform = unit(draw(key, LENGTH + begin))
        words = 1
        while thresholds[words - 1] <= uniform:
            words += 1
        end = begin
        for following in range(word, min(word + words, len(begins))):
            if (following > word and begins[following] != end) or ends[following] - begin > left:
                break
            end = ends[following]
        if end > begin and not taken[begin:end].any():
            taken[begin:end] = True
            left -= end - begin
    return taken

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tfrecords.examples.masking import MaskingRule, MaskingVocabulary, mask_examples
from tfrecords.examples.randomness import derive

CLS, SEP, MASK, SIZE = 2, 3, 4, 400
# Two of three pieces go on with a word.
VOCABULARY = MaskingVocabulary(CLS, SEP, MASK, np.arange(SIZE) % 3 == 0, np.arange(5, SIZE, dtype=np.int32))
TOKENS = MaskingVocabulary(CLS, SEP, MASK, np.ones(SIZE, bool), np.arange(5, SIZE, dtype=np.int32))


def random_batch(seed, examples, sequence, full=False):
    """[CLS] text [SEP] text [SEP] padding."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(5, SIZE, (examples, sequence)).astype(np.int32)
    lengths = np.full(examples, sequence) if full else generator.integers(3, sequence + 1, examples)
    ids[:, 0] = CLS
    rows = np.arange(examples)
    ids[rows, generator.integers(1, lengths)] = SEP
    ids[rows, lengths - 1] = SEP
    ids[np.arange(sequence) >= lengths[:, None]] = 0
    return ids, lengths.astype(np.int32), derive(seed, rows)


@given(st.integers(0, 10**6), st.integers(4, 60), st.integers(1, 60), st.floats(0, 1), st.integers(1, 4))
def test_invariants(seed, sequence, predictions, probability, ngram):
    ids, lengths, keys = random_batch(seed, 4, sequence)
    rule = MaskingRule(predictions, probability, ngram)
    masked, positions, originals, counts = mask_examples(ids, lengths, keys, rule, VOCABULARY)
    for row in range(4):
        count, length = counts[row], lengths[row]
        # Python's round, as the reference has it.
        assert count <= (min(predictions, max(1, round(int(length) * probability))) if probability else 0)
        where = positions[row, :count]
        assert (np.diff(where) > 0).all()
        assert (positions[row, count:] == 0).all()
        assert (originals[row, count:] == 0).all()
        assert not np.isin(ids[row, where], [CLS, SEP, 0]).any()
        restored = masked[row].copy()
        restored[where] = originals[row, :count]
        assert_array_equal(restored, ids[row])
        # Whole words: a predicted token's whole word is predicted.
        special = np.isin(ids[row], [CLS, SEP])
        begins = special | VOCABULARY.word_starts[ids[row]]
        begins[1:] |= special[:-1]
        words = np.cumsum(begins)[:length]
        assert set(np.flatnonzero(np.isin(words, words[where]))) == set(where)


def test_budget_is_met_when_single_tokens_fit():
    ids, lengths, keys = random_batch(0, 50, 512, full=True)
    for predictions, expected in ((20, 20), (77, 77), (500, 77)):
        counts = mask_examples(ids, lengths, keys, MaskingRule(predictions, 0.15, 3), TOKENS)[3]
        assert (counts == expected).all()


def test_gold_cases_of_tf_models():
    # [CLS] a ##a b ##b c ##c [SEP]: a budget of 3 takes three tokens, or one whole word, never half of one.
    starts = np.zeros(20, bool)
    starts[[10, 12, 14]] = True
    vocabulary = MaskingVocabulary(CLS, SEP, MASK, starts, np.arange(5, 20, dtype=np.int32))
    ids = np.tile(np.array([CLS, 10, 11, 12, 13, 14, 15, SEP], np.int32), (200, 1))
    lengths, keys = np.full(200, 8), derive(0, np.arange(200))
    for whole_words, count in ((False, 3), (True, 2)):
        counts = mask_examples(ids, lengths, keys, MaskingRule(3, 1.0, 1, whole_words), vocabulary)[3]
        assert (counts == count).all()


# Sampling error: a share p of n is off by more than 4.5 sqrt(p(1-p)/n) in 7 of a million runs; seeds are fixed.
@pytest.fixture(scope="module")
def sample():
    ids, lengths, keys = random_batch(1, 20_000, 60, full=True)
    return ids, mask_examples(ids, lengths, keys, MaskingRule(8, 0.15, 3), TOKENS)


def test_80_10_10_each_token_by_itself(sample):
    _, (masked, positions, originals, counts) = sample
    present = np.arange(8) < counts[:, None]
    now = np.take_along_axis(masked, positions, axis=1)
    is_mask, is_same = now[present] == MASK, now[present] == originals[present]
    assert_share(is_mask, 0.8)
    # A random piece is the original itself once in 395 times.
    assert_share(is_same, 0.1 + 0.1 / len(TOKENS.ordinary_ids))
    # Per token, not per span: two neighbours agree as often as two strangers do.
    neighbours = present[:, 1:] & (np.diff(positions, axis=1) == 1)
    both = (now == MASK)[:, 1:] & (now == MASK)[:, :-1]
    assert_share(both[neighbours], 0.64)


def test_random_pieces_are_uniform_and_never_special(sample):
    _, (masked, positions, originals, counts) = sample
    present = np.arange(8) < counts[:, None]
    now = np.take_along_axis(masked, positions, axis=1)[present]
    drawn = now[(now != MASK) & (now != originals[present])]
    assert drawn.min() >= 5
    counts_of = np.bincount(drawn, minlength=SIZE)[5:]
    expected = len(drawn) / len(counts_of)
    chi_square = ((counts_of - expected) ** 2 / expected).sum()
    assert abs(chi_square - len(counts_of)) < 5 * np.sqrt(2 * len(counts_of))


def test_lengths_of_first_spans_follow_one_over_n():
    # A budget of 3 in 20 words: the first span tried is always taken, with the length that was drawn.
    ids, lengths, keys = random_batch(2, 10_000, 23, full=True)
    ids[:, 1:-1] = 9
    _, positions, _, counts = mask_examples(ids, lengths, keys, MaskingRule(3, 0.14, 3), TOKENS)
    assert (counts == 3).all()
    gaps = np.diff(positions, axis=1) == 1
    whole = gaps.all(axis=1)
    # Three in a row: a 3-gram (2/11), or shorter spans that happen to touch; these touch in under 1 of 5 cases.
    assert 2 / 11 - 0.01 < whole.mean() < 2 / 11 + 0.2 * 9 / 11
    simulated = simulate_runs(5000, 21)
    assert abs(whole.mean() - simulated) < 0.02


def test_every_word_is_as_likely_as_its_neighbours():
    ids, lengths, keys = random_batch(3, 30_000, 42, full=True)
    ids[:, 1:-1] = 9
    positions = mask_examples(ids, lengths, keys, MaskingRule(4, 0.1, 1), TOKENS)[1]
    counts = np.bincount(positions.ravel(), minlength=42)[1:41]
    assert (np.abs(counts - 3000) < 5 * np.sqrt(3000)).all()


def test_stream_depends_on_the_key_alone():
    ids, lengths, keys = random_batch(4, 64, 40)
    rule = MaskingRule(8)
    together = mask_examples(ids, lengths, keys, rule, VOCABULARY)
    for row in (0, 17, 63):
        alone = mask_examples(ids[row : row + 1], lengths[row : row + 1], keys[row : row + 1], rule, VOCABULARY)
        for left, right in zip(together, alone):
            assert_array_equal(left[row], right[0])
    ids, lengths, keys = random_batch(4, 64, 60, full=True)
    first, other = (mask_examples(ids, lengths, k, rule, VOCABULARY) for k in (keys, derive(99, np.arange(64))))
    assert (first[1] != other[1]).any(axis=1).all()


def simulate_runs(trials, words):
    """The reference's rule in plain Python: share of trials whose three predictions are neighbours."""
    generator = np.random.default_rng(5)
    together = 0
    for _ in range(trials):
        taken = set()
        for start in generator.permutation(words):
            size = int(generator.choice([1, 2, 3], p=[6 / 11, 3 / 11, 2 / 11]))
            size = min(size, words - start, 3 - len(taken))
            if size and not taken & set(range(start, start + size)):
                taken |= set(range(start, start + size))
        together += max(taken) - min(taken) == 2
    return together / trials


def assert_share(hits, expected):
    assert abs(hits.mean() - expected) < 4.5 * np.sqrt(expected * (1 - expected) / hits.size)

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tfrecords.examples.randomness import derive
from tfrecords.examples.segments import NONE, NSP, PAIR_TASKS, SOP, SOP_LEGACY, cut_long_sentences, pair_spans

# Sentence lengths by document; every token's id is its place in the corpus.
corpora = st.lists(st.lists(st.integers(1, 30), max_size=12), min_size=1, max_size=6)


def splits_of(corpus):
    sentences = [length for document in corpus for length in document]
    sentence_splits = np.concatenate([[0], np.cumsum(sentences)]).astype(np.int64)
    return sentence_splits, np.cumsum([0] + [len(document) for document in corpus])


def document_of(corpus):
    """For every token, its document."""
    return np.repeat(np.arange(len(corpus)), [sum(document) for document in corpus])


def make_pairs(corpus, max_tokens, task, seed=0, short=0.1, single=False):
    sentence_splits, document_splits = splits_of(corpus)
    keys = derive(seed, np.arange(len(corpus)))
    return pair_spans(sentence_splits, document_splits, keys, max_tokens, short, task, single)


@given(st.lists(st.lists(st.integers(0, 60), max_size=8), min_size=1, max_size=5), st.integers(4, 40))
def test_long_sentences_are_cut_evenly_and_no_token_is_lost(corpus, max_tokens):
    sentence_splits, document_splits = splits_of(corpus)
    cut, cut_documents = cut_long_sentences(sentence_splits, document_splits, max_tokens)
    lengths = np.diff(cut)
    assert (lengths > 0).all()
    assert lengths.max(initial=0) <= max_tokens
    assert_array_equal(cut[cut_documents], sentence_splits[document_splits])
    assert set(sentence_splits.tolist()) <= set(cut.tolist())
    if max(map(max, filter(None, corpus)), default=0) <= max_tokens:
        assert_array_equal(cut, np.unique(sentence_splits))


@given(corpora, st.integers(4, 60), st.sampled_from(range(len(PAIR_TASKS))), st.booleans(), st.integers(0, 999))
def test_pairs_fit_and_hold_what_the_task_says(corpus, max_tokens, task, single, seed):
    spans, labels, _ = make_pairs(corpus, max_tokens, task, seed, single=single)
    owner = document_of(corpus)
    for (a_start, a_end, b_start, b_end), label in zip(spans, labels):
        assert a_end > a_start and a_end - a_start + b_end - b_start <= max_tokens
        assert task == NONE or b_end > b_start
        assert len(set(owner[a_start:a_end])) == 1
        assert len(set(owner[b_start:b_end])) <= 1
        same = b_end == b_start or owner[a_start] == owner[b_start]
        if label == 0:
            assert same and (task == NONE or a_end <= b_start)
        elif task == SOP:
            assert same and b_end <= a_start
        else:
            assert task == SOP_LEGACY or (task == NSP and not same)


def test_without_truncation_sop_uses_every_token_once():
    corpus = [[5, 5, 5, 5, 5, 5]] * 40
    spans, _, _ = make_pairs(corpus, 30, SOP, short=0.0)
    assert sorted(t for a, b, c, d in spans for t in [*range(a, b), *range(c, d)]) == list(range(40 * 30))


def test_one_sentence_documents():
    corpus = [[7], [8], [9]]
    assert len(make_pairs(corpus, 20, SOP)[0]) == 0
    spans, _, _ = make_pairs(corpus, 20, NONE)
    assert spans.tolist() == [[0, 7, 7, 7], [7, 15, 15, 15], [15, 24, 24, 24]]
    for task in (SOP_LEGACY, NSP):
        spans, labels, _ = make_pairs(corpus, 20, task)
        assert labels.tolist() == [1, 1, 1]
        owner = document_of(corpus)
        assert all(owner[a] != owner[b] for a, _, b, _ in spans)
        assert len(make_pairs([[7]], 20, task)[0]) == 0


def test_empty_documents_are_passed_over():
    for task in range(len(PAIR_TASKS)):
        assert len(make_pairs([[], [3, 3], [], []], 20, task, short=0.0)[0]) == 1
        assert len(make_pairs([[]], 20, task)[0]) == 0


def test_labels_are_balanced():
    _, labels, _ = make_pairs([[5] * 40] * 1000, 30, SOP)
    assert abs(labels.mean() - 0.5) < 4.5 * np.sqrt(0.25 / len(labels))
    assert len(labels) > 5000
    # A chunk of one sentence has no other way to make an NSP pair, so there are a few more of label 1.
    assert 0.5 < make_pairs([[5] * 40] * 1000, 30, NSP)[1].mean() < 0.56


def test_cut_between_the_segments_is_uniform():
    spans, _, _ = make_pairs([[1] * 6] * 20_000, 6, NONE, short=0.0)
    cuts = np.bincount(spans[:, 1] - spans[:, 0], minlength=7)[1:6]
    assert cuts.sum() == 20_000
    assert (np.abs(cuts - 4000) < 5 * np.sqrt(4000)).all()


@pytest.mark.parametrize("task", [NONE, SOP])
def test_short_examples_of_long_documents_are_as_rare_as_requested_and_of_any_length(task):
    spans, _, keys = make_pairs([[1] * 5000] * 300, 100, task, short=0.1)
    lengths = spans[:, 1] - spans[:, 0] + spans[:, 3] - spans[:, 2]
    assert 0.09 < (lengths < 98).mean() < 0.125
    assert len(np.unique(keys)) == len(keys)
    if task == NONE:
        # A short target is drawn from [2, 100].
        counts = np.bincount(lengths[lengths < 98], minlength=98)[2:]
        assert (np.abs(counts - counts.mean()) < 6 * np.sqrt(counts.mean())).all()


def test_truncation_takes_from_both_ends_of_both_segments():
    spans, labels, _ = make_pairs([[30, 30]] * 4000, 20, SOP, short=0.0)
    spans = np.where(labels[:, None] == 1, spans[:, [2, 3, 0, 1]], spans)
    assert (np.diff(spans)[:, ::2] == 10).all()
    for segment in (0, 2):
        dropped_in_front = spans[:, segment] - np.arange(4000) * 60 - segment * 15
        assert dropped_in_front.min() >= 0
        assert abs(dropped_in_front.mean() - 10) < 5 * np.sqrt(5 / 4000)


def guessed_from_lengths(spans, labels):
    """Share of labels that the best rule over the difference of the lengths, told half of the pairs, gets right."""
    difference = np.clip((spans[:, 1] - spans[:, 0]) - (spans[:, 3] - spans[:, 2]), -40, 40) // 4 + 10
    half = np.arange(len(labels)) % 2 == 0
    votes = np.bincount(difference[half], labels[half] * 2.0 - 1, minlength=21)
    return ((votes[difference] > 0) == labels)[~half].mean()


@pytest.mark.parametrize("sentences", [(4, 40), (20, 200)], ids=["sentences", "paragraphs"])
def test_the_lengths_of_a_sop_pair_do_not_tell_the_label(sentences):
    generator = np.random.default_rng(3)
    # A heading first, and now and then a much longer sentence.
    corpus = [[3, *generator.integers(*sentences, 60).tolist()] for _ in range(4000)]
    spans, labels, _ = make_pairs(corpus, 128, SOP)
    assert len(labels) > 20_000
    assert guessed_from_lengths(spans, labels) <= 0.51
    longer = np.sign((spans[:, 1] - spans[:, 0]) - (spans[:, 3] - spans[:, 2]))
    assert abs(longer[labels == 0].mean() - longer[labels == 1].mean()) < 0.03


def test_sop_pairs_of_even_length_are_the_chunks_text_but_for_little():
    generator = np.random.default_rng(4)
    corpus = [generator.integers(4, 40, 60).tolist() for _ in range(500)]
    sizes = [
        (s[:, 1] - s[:, 0] + s[:, 3] - s[:, 2]).mean()
        for s in (make_pairs(corpus, 128, t, short=0.0)[0] for t in (SOP, NONE))
    ]
    assert sizes[0] > 0.95 * sizes[1]


def test_sentence_pairs_are_two_sentences():
    spans, _, _ = make_pairs([[3, 4, 5, 6, 7, 8]] * 50, 50, SOP, short=0.0, single=True)
    assert sorted((np.diff(spans)[:, ::2]).sum(axis=1).tolist()) == [7] * 50 + [11] * 50 + [15] * 50
    spans, _, _ = make_pairs([[3, 4, 5, 6, 7]], 50, NONE, short=0.0, single=True)
    assert spans.tolist() == [[0, 3, 3, 7], [7, 12, 12, 18], [18, 25, 25, 25]]

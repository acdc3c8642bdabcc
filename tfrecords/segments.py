"""Cuts documents of sentences into the spans of tokens that fill an example.

A batch of documents is `ids` (int32, all tokens), `sentence_splits` (int64 [sentences + 1], positions in ids) and
`document_splits` (int64 [documents + 1], positions in sentence_splits).
"""

import numpy as np

from tfrecords.base.compiled import compiled
from tfrecords.randomness import below, draw, unit

INPUT_FORMATS = ("segment-pair", "sentence-pair", "full-sentences", "doc-sentences")


def cut_long_sentences(
    sentence_splits: np.ndarray, document_splits: np.ndarray, max_tokens: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cuts sentences of over `max_tokens` tokens into even parts of at most half as many; drops empty sentences.

    Returns new (sentence_splits, document_splits).
    """
    starts, lengths = sentence_splits[:-1], np.diff(sentence_splits)
    half = max(max_tokens // 2, 1)
    parts = np.where(lengths > max_tokens, -(-lengths // half), (lengths > 0).astype(np.int64))
    part_splits = np.concatenate([[0], np.cumsum(parts)])
    nth = np.arange(part_splits[-1]) - np.repeat(part_splits[:-1], parts)
    cuts = np.repeat(starts, parts) + np.repeat(lengths, parts) * nth // np.repeat(parts, parts)
    return np.concatenate([cuts, sentence_splits[-1:]]), part_splits[document_splits]


def join_documents(
    ids: np.ndarray, sentence_splits: np.ndarray, document_splits: np.ndarray, separator: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Joins all documents into one, with token `separator` after each, for the input_format "full-sentences"."""
    filled = np.flatnonzero(np.diff(document_splits))
    last_sentences = document_splits[filled + 1]
    ends = sentence_splits[last_sentences]
    extra = np.zeros(len(sentence_splits), np.int64)
    extra[last_sentences] = 1
    sentence_splits = sentence_splits + np.cumsum(extra)
    joined = np.insert(ids, ends, separator).astype(np.int32)
    return joined, sentence_splits, np.array([0, len(sentence_splits) - 1])


@compiled
def target_length(key, max_tokens, short_probability):
    """Returns an example's target length: `max_tokens` or, with `short_probability`, a random one in [2, max_tokens].

    Source: google-research/albert create_pretraining_data.py:266-386.
    """
    if unit(draw(key, 0)) < short_probability:
        return 2 + below(draw(key, 1), max(max_tokens - 1, 1))
    return max_tokens


@compiled
def single_spans(sentence_splits, document_splits, keys, max_tokens, short_probability):
    """Fills each example with consecutive whole sentences of a document, as in RoBERTa (Liu et al. 2019, section 4.2).

    Returns (spans int64 [examples, 4] with an empty second span, labels int32 [examples], keys uint64 [examples]).
    """
    spans = np.zeros((len(sentence_splits), 4), np.int64)
    example_keys = np.zeros(len(sentence_splits), np.uint64)
    count = 0
    for document in range(len(document_splits) - 1):
        first, last = document_splits[document], document_splits[document + 1]
        while first < last:
            key = draw(keys[document], first - document_splits[document])
            target = target_length(key, max_tokens, short_probability)
            end = first + 1
            while end < last and sentence_splits[end + 1] - sentence_splits[first] <= target:
                end += 1
            stop = sentence_splits[end]
            spans[count] = sentence_splits[first], stop, stop, stop
            example_keys[count] = key
            count += 1
            first = end
    return spans[:count], np.zeros(count, np.int32), example_keys[:count]

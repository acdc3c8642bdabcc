"""Cuts documents of sentences into the spans of tokens that fill an example.

A batch of documents is `ids` (int32, all tokens), `sentence_splits` (int64 [sentences + 1], positions in ids) and
`document_splits` (int64 [documents + 1], positions in sentence_splits).
"""

import numpy as np

from tfrecords.base.machine.compiled import compiled
from tfrecords.examples.randomness import below, draw, unit

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


PAIR_TASKS = ("sop", "sop_legacy", "nsp", "none")
SOP, SOP_LEGACY, NSP, NONE = range(4)
_TRIES = 10
# Draws of an example's stream: below 1 << 20 those of the cut, the label, the partner and the truncation, and up to
# 5 << 20 those of `masking`.
_SHORT, _MIRROR = (purpose << 20 for purpose in (5, 6))


@compiled
def pair_spans(
    sentence_splits,
    document_splits,
    keys,
    max_tokens,
    short_probability,
    task,
    single_sentences,
):
    """Cuts documents into pairs of segments that have at most `max_tokens` tokens together.

    task: index into PAIR_TASKS. single_sentences: a segment is one sentence.

    Returns (spans int64 [examples, 4]: start and end of A and of B, labels int32 [examples], keys uint64 [examples]).
    """
    spans = np.zeros((len(sentence_splits), 4), np.int64)
    labels = np.zeros(len(sentence_splits), np.int32)
    example_keys = np.zeros(len(sentence_splits), np.uint64)
    count = 0
    for document in range(len(document_splits) - 1):
        begin, last = document_splits[document], document_splits[document + 1]
        first = begin
        while first < last:
            key = draw(keys[document], 2 + first - begin)
            target = target_length(draw(key, _SHORT), max_tokens, short_probability)
            end = _chunk_end(sentence_splits, first, last, target, task, single_sentences)
            size = end - first
            cut = first + 1
            if size > 1 and not single_sentences:
                cut = first + 1 + below(draw(key, 0), size - 1)
            label = draw(key, 1) & np.uint64(1)
            other = -1
            if (task == NSP and (label == 1 or size == 1)) or (task == SOP_LEGACY and size == 1):
                other = _other_document(document_splits, document, key)
            if other >= 0:
                room = target - (sentence_splits[cut] - sentence_splits[first])
                b_first, b_end = _random_segment(sentence_splits, document_splits, other, key, room, single_sentences)
                row = (sentence_splits[first], sentence_splits[cut], sentence_splits[b_first], sentence_splits[b_end])
                label, first = np.uint64(1), cut
            else:
                row = (sentence_splits[first], sentence_splits[cut], sentence_splits[cut], sentence_splits[end])
                if task == SOP and size > 1 and not single_sentences:
                    row = _even_out(sentence_splits, first, cut, end, key)
                first = end
                if size == 1 and task != NONE:
                    continue
                if task in (NSP, NONE):
                    label = np.uint64(0)
                if label == 1:
                    row = (row[2], row[3], row[0], row[1])
            spans[count] = _truncate(row, max_tokens, key)
            labels[count] = label
            example_keys[count] = key
            count += 1
    return spans[:count], labels[:count], example_keys[:count]


@compiled
def _chunk_end(sentence_splits, first, last, target, task, single_sentences):
    if single_sentences:
        return min(first + 2, last)
    minimum = 2 if task == SOP else 1
    end = first
    while end < last and (end - first < minimum or sentence_splits[end] - sentence_splits[first] < target):
        end += 1
    return end


# With equal chance this cut or its mirror image; exchanging the segments of one gives the lengths of the other.
@compiled
def _even_out(sentence_splits, first, cut, end, key):
    begin, stop = sentence_splits[first], sentence_splits[end]
    ahead, behind = sentence_splits[cut] - begin, stop - sentence_splits[cut]
    mirror = cut
    for other in range(first + 1, end):
        if abs(sentence_splits[other] - begin - behind) < abs(sentence_splits[mirror] - begin - behind):
            mirror = other
    ahead = min(ahead, stop - sentence_splits[mirror])
    behind = min(behind, sentence_splits[mirror] - begin)
    if draw(key, _MIRROR) & np.uint64(1):
        cut, ahead, behind = mirror, behind, ahead
    middle = sentence_splits[cut]
    a_start, a_end = _shorten(begin, middle, ahead, key, _MIRROR + 1)
    b_start, b_end = _shorten(middle, stop, behind, key, _MIRROR + 1 + middle - begin)
    return a_start, a_end, b_start, b_end


@compiled
def _shorten(start, end, length, key, counter):
    while end - start > length:
        if draw(key, counter) & np.uint64(1) == 1:
            start += 1
        else:
            end -= 1
        counter += 1
    return start, end


@compiled
def _other_document(document_splits, document, key):
    documents = len(document_splits) - 1
    for attempt in range(_TRIES):
        other = below(draw(key, 2 + attempt), documents)
        if other != document and document_splits[other + 1] > document_splits[other]:
            return other
    return -1


@compiled
def _random_segment(sentence_splits, document_splits, other, key, target, single_sentences):
    begin, last = document_splits[other], document_splits[other + 1]
    first = begin + below(draw(key, 2 + _TRIES), last - begin)
    end = first + 1
    while not single_sentences and end < last and sentence_splits[end] - sentence_splits[first] < target:
        end += 1
    return first, end


@compiled
def _truncate(row, max_tokens, key):
    a_start, a_end, b_start, b_end = row
    counter = 2 + _TRIES + 1
    while a_end - a_start + b_end - b_start > max_tokens:
        at_front = draw(key, counter) & np.uint64(1) == 1
        counter += 1
        if a_end - a_start > b_end - b_start:
            if at_front:
                a_start += 1
            else:
                a_end -= 1
        elif at_front:
            b_start += 1
        else:
            b_end -= 1
    return a_start, a_end, b_start, b_end

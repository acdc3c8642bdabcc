"""Converts the documents of a shard to XLNet's records for permutation language modelling.

The documents form one text, cut into `streams` equal streams. A row is

    reused part  A [SEP] B [SEP] [CLS]

The reused part is the next `reuse_length` tokens of its stream. Where it ends, both A and the stream's next row
begin. B follows A (label 1) or is from anywhere in the stream (label 0). In a file, row i continues row i - streams.
The second half of the streams is the first half read backwards.

Features are those of zihangdai/xlnet (data_utils.py:219-331, 369-518), int64 [max_seq_length]: input, target (the next
token), is_masked, seg_id (0: reused part, A, [SEP]; 1: B, [SEP]; 2: [CLS]); and label [1].
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tfrecords.base.machine.compiled import compiled
from tfrecords.building.settings import SPAN_CONTEXT, BuildSettings
from tfrecords.examples.masking import MaskingVocabulary
from tfrecords.examples.randomness import below, derive, draw, unit
from tfrecords.examples.records import encode_records
from tfrecords.examples.segments import join_documents
from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.words import word_begins

# A published configuration that is trained on these records.
CONFIG = "albert_xlnet_base"
# The piece that ends a document, where the vocabulary has it.
DOCUMENT_END = "<eod>"
# Purpose of keys that belong to no single document; `deal` and `worker` have others.
_ROWS = -5
# Draws of a row's stream of random numbers: the label, the cut, B's place; then those of its two parts' spans.
_LABEL, _CUT, _PLACE = range(3)
_SPANS = 1 << 20
# Rows encoded at once.
_BLOCK = 256


@dataclass(frozen=True)
class Streams:
    """Texts of equal length from which consecutive rows are cut.

    ids: int32 [streams, tokens]. begins: bool [streams, tokens], where sentences begin. backwards: bool [streams].
    """

    ids: np.ndarray
    begins: np.ndarray
    backwards: np.ndarray


@dataclass(frozen=True)
class PermutationRows:
    """Features of rows by name, int32 [rows, max_seq_length], and labels [rows]."""

    input: np.ndarray
    target: np.ndarray
    is_masked: np.ndarray
    seg_id: np.ndarray
    labels: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.full(len(self.input), self.input.shape[1])

    def encode(self) -> bytes:
        features = {name: getattr(self, name) for name in ("input", "target", "is_masked", "seg_id")}
        return encode_records(features | {"label": self.labels[:, None]})


def document_end_id(tokenizer: Tokenizer) -> int | None:
    """Returns `DOCUMENT_END`'s id, or None."""
    return tokenizer.piece_ids.get(DOCUMENT_END)


def make_streams(
    settings: BuildSettings,
    end_id: int | None,
    ids: np.ndarray,
    sentence_splits: np.ndarray,
    document_splits: np.ndarray,
) -> Streams:
    """Joins documents (see `segments`), each followed by `end_id`, and cuts equal streams, without the remainder."""
    if end_id is not None:
        ids, sentence_splits, _ = join_documents(ids, sentence_splits, document_splits, end_id)
    begins = np.zeros(len(ids) + 1, bool)
    begins[sentence_splits] = True
    begins = begins[:-1] | (False if end_id is None else ids == end_id)
    forward = settings.streams // 2
    tokens = len(ids) // forward
    ids, begins = (values[: forward * tokens].reshape(forward, tokens) for values in (ids, begins))
    # A sentence that runs backwards begins at its end.
    ends = np.roll(begins, -1, axis=1)
    ids, begins = (np.concatenate([one, other[:, ::-1]]) for one, other in ((ids, ids), (begins, ends)))
    backwards = np.arange(settings.streams) >= forward
    return Streams(np.ascontiguousarray(ids, np.int32), np.ascontiguousarray(begins), backwards)


def encode_streams(
    settings: BuildSettings,
    vocabulary: MaskingVocabulary,
    end_id: int | None,
    ids: np.ndarray,
    sentence_splits: np.ndarray,
    document_splits: np.ndarray,
    document_numbers: np.ndarray,
    copy: int,
) -> Iterator[tuple[bytes, PermutationRows]]:
    """Yields the rows of a shard in blocks, in order: (TFRecord bytes, rows).

    All random choices depend only on document_numbers[0], the pass `copy` and the seed.
    """
    streams = make_streams(settings, end_id, ids, sentence_splits, document_splits)
    key = derive(settings.seed, _ROWS, copy, document_numbers[0])
    steps = max(1, _BLOCK // settings.streams)
    first = 0
    while True:
        rows = lay_out_steps(settings, vocabulary, streams, key, first, first + steps)
        yield rows.encode(), rows
        first += steps
        if len(rows.input) < steps * settings.streams:
            return


def lay_out_steps(
    settings: BuildSettings, vocabulary: MaskingVocabulary, streams: Streams, key: np.ndarray, first: int, last: int
) -> PermutationRows:
    """Builds the rows of steps [`first`, `last`): one per stream and step, except where a stream ends."""
    numbers = np.arange(first * settings.streams, last * settings.streams)
    starts, *pieces = vocabulary.word_table
    starts = starts.copy()
    starts[[vocabulary.cls_id, vocabulary.sep_id]] = True
    return PermutationRows(
        *_lay_out(
            streams.ids,
            streams.begins,
            streams.backwards,
            first,
            derive(key.astype(np.int64), numbers),
            (starts, *pieces),
            (vocabulary.cls_id, vocabulary.sep_id),
            (settings.max_seq_length, settings.reuse_length),
            settings.predictions_of_parts,
            settings.masking_rule.ngram_thresholds,
        )
    )


@compiled
def _lay_out(ids, begins, backwards, first, keys, words, special, lengths, goals, thresholds):
    sequence, reuse = lengths
    rows = len(keys)
    inputs, targets, masks, segments = (
        np.empty((rows, sequence), np.int32),
        np.empty((rows, sequence), np.int32),
        np.empty((rows, sequence), np.int32),
        np.empty((rows, sequence), np.int32),
    )
    labels = np.zeros(rows, np.int32)
    # Without a reused part, rows follow each other.
    advance = reuse if reuse else sequence - 3
    count = 0
    for step in range(first, first + rows // len(ids)):
        begin = step * advance
        for stream in range(len(ids)):
            text, row, key = ids[stream], count + stream, keys[count + stream]
            label, a_end, b_begin, b_end = _cut_pair(begins[stream], begin + reuse, sequence - reuse - 3, key)
            if label < 0 or begin + sequence > len(text):
                return inputs[:count], targets[:count], masks[:count], segments[:count], labels[:count]
            labels[row] = label
            _fill(text, begin, a_end, b_begin, b_end, special, inputs[row], targets[row], segments[row])
            # In forward order.
            if backwards[stream]:
                begun = word_begins(inputs[row, ::-1].copy(), *words)[::-1].copy()
            else:
                begun = word_begins(inputs[row], *words)
            back = backwards[stream]
            masks[row, :reuse] = sample_spans(begun[:reuse], back, goals[0], key, _SPANS, thresholds)
            masks[row, reuse:] = sample_spans(begun[reuse:], back, goals[1], key, 2 * _SPANS, thresholds)
        count += len(ids)
    return inputs[:count], targets[:count], masks[:count], segments[:count], labels[:count]


@compiled
def _cut_pair(begins, begin, room, key):
    tokens = len(begins)
    if begin + room >= tokens:
        return -1, 0, 0, 0
    cuts, stop = 0, begin + 1
    while stop < tokens and not (begins[stop] and stop - begin >= room):
        cuts += begins[stop]
        stop += 1
    a_end = begin + 1 if cuts else stop
    left = below(draw(key, _CUT), max(cuts, 1))
    while cuts and (left or not begins[a_end]):
        left -= begins[a_end]
        a_end += 1
    label = 1 if cuts and draw(key, _LABEL) & np.uint64(1) else 0
    if label:
        b_begin, b_end = a_end, stop
    else:
        length = max(1, room - (a_end - begin))
        b_begin = below(draw(key, _PLACE), tokens - length)
        b_end = b_begin + length
        while b_begin > 0 and not begins[b_begin]:
            b_begin -= 1
        while b_end < tokens - 1 and not begins[b_end]:
            b_end += 1
    # Only at the end: the part after the reused one must continue it.
    while a_end - begin + b_end - b_begin > room:
        if a_end - begin > b_end - b_begin:
            a_end -= 1
        else:
            b_end -= 1
    # A row needs one more token of the stream: the target of its last one.
    return (label if max(a_end, b_end) < tokens else -1), a_end, b_begin, b_end


@compiled
def _fill(text, begin, a_end, b_begin, b_end, special, inputs, targets, segments):
    cls_id, sep_id = special
    first, second = a_end - begin, b_end - b_begin
    inputs[:first] = text[begin:a_end]
    targets[:first] = text[begin + 1 : a_end + 1]
    inputs[first] = sep_id
    inputs[first + 1 : first + 1 + second] = text[b_begin:b_end]
    targets[first : first + 1 + second] = text[b_begin : b_end + 1]
    inputs[-2], inputs[-1] = sep_id, cls_id
    targets[-2:] = cls_id
    segments[: first + 1] = 0
    segments[first + 1 : -1] = 1
    segments[-1] = 2


@compiled
def sample_spans(starts, backwards, goal, key, counter, thresholds):
    """Chooses `goal` tokens to mask, in spans: bool [length] (data_utils.py:331-392).

    A span is n pieces from the beginning of a word. About n * SPAN_CONTEXT other tokens surround it. Single tokens
    complete the goal. starts: where words begin. key, counter: the random stream and its first draw.
    """
    length = len(starts)
    taken = np.zeros(length, np.bool_)
    begun = starts[::-1].copy() if backwards else starts.copy()
    left, at = goal, 0
    while at < length and left > 0:
        uniform = unit(draw(key, counter))
        size = 1
        while thresholds[size - 1] <= uniform:
            size += 1
        size = min(size, left)
        context = size * SPAN_CONTEXT
        before = below(draw(key, counter + 1), context)
        counter += 2
        begin = at + before
        while begin < length and not begun[begin]:
            begin += 1
        end = begin + size
        if end >= length:
            break
        taken[begin:end] = True
        left -= size
        at = end + context - before
    while left > 0:
        place = below(draw(key, counter), length)
        counter += 1
        if not taken[place]:
            taken[place] = True
            left -= 1
    return taken[::-1].copy() if backwards else taken

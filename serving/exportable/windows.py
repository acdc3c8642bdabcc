"""A context of any length as windows that overlap, each with the question in front."""

from typing import NamedTuple

import tensorflow as tf

from serving.exportable.framing import Framer
from serving.exportable.rows import Rows


class Windows(NamedTuple):
    """Attributes:
    rows: [CLS] question [SEP] part of the context [SEP], [windows, length].
    row: int32 [windows], the question that each window is of; questions lie end to end.
    token: int32 [windows, length], which of all contexts' tokens, end to end, stands at each position; 0 elsewhere.
    is_context: bool [windows, length].
    is_best: bool [windows, length], of every context token true in one window only, where it has the most context
        (run_squad.py, `_check_is_max_context`, of google-research/bert).
    """

    rows: Rows
    row: tf.Tensor
    token: tf.Tensor
    is_context: tf.Tensor
    is_best: tf.Tensor


def make_windows(framer: Framer, question: tf.RaggedTensor, context: tf.RaggedTensor, doc_stride: int) -> Windows:
    """Windows `doc_stride` tokens apart, or less where a long question leaves less room.

    Args:
        question, context: token ids [batch, None].
    """
    sizes = tf.cast(context.row_lengths(), tf.int32)
    room = framer.max_seq_length - 3 - tf.cast(question.row_lengths(), tf.int32)
    stride = tf.minimum(doc_stride, room)
    counts = tf.maximum(-((room - sizes) // stride), 0) + 1
    row = tf.repeat(tf.range(tf.size(counts)), counts)
    number = tf.range(tf.size(row)) - tf.repeat(tf.math.cumsum(counts, exclusive=True), counts)
    start = number * tf.gather(stride, row)
    length = tf.minimum(tf.gather(room, row), tf.gather(sizes, row) - start)
    first = tf.gather(tf.cast(context.row_starts(), tf.int32), row) + start
    tokens = tf.ragged.range(first, first + length)
    questions = tf.gather(question, row)
    rows = framer.join(questions, tokens.with_values(tf.gather(context.values, tokens.values)))
    before = tf.cast(questions.row_lengths(), tf.int32)[:, tf.newaxis] + 2
    place = tf.range(tf.shape(rows.input_ids)[1]) - before
    is_context = (place >= 0) & (place < length[:, tf.newaxis])
    token = tf.where(is_context, first[:, tf.newaxis] + place, 0)
    return Windows(rows, row, token, is_context, is_context & _has_most_context(token, place, length, context))


def _has_most_context(token, place, length, context) -> tf.Tensor:
    left_right = tf.minimum(place, length[:, tf.newaxis] - 1 - place)
    # In whole numbers: context counts 100, a token of the window 1; among equals the first window wins.
    score = tf.cast(left_right * 100 + length[:, tf.newaxis], tf.int64) * tf.size(length, out_type=tf.int64)
    score -= tf.range(tf.size(length, out_type=tf.int64))[:, tf.newaxis]
    inside = (place >= 0) & (place < length[:, tf.newaxis])
    best = tf.math.unsorted_segment_max(
        tf.boolean_mask(score, inside), tf.boolean_mask(token, inside), tf.size(context.values)
    )
    # A context without tokens has no best window.
    return score == tf.gather(tf.concat([best, [0]], axis=0), token)

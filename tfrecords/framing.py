"""Tokens to rows: [CLS] and [SEP] around one text, a pair, a choice, words or a window of a passage, cut and padded.

All of it is TensorFlow operations over ragged token ids, so that it goes into an exported graph as it is.
"""

from typing import NamedTuple, Self

import tensorflow as tf

from tfrecords.tokenizers.base import Tokenizer

# Tokens of question and choice together (google-research/albert run_race.py, --max_qa_length).
MAX_CHOICE_LENGTH = 128


class TokenBatch(NamedTuple):
    """A padded batch; all int32.

    Attributes:
        input_ids: [batch, length], 0 at padding.
        mask: [batch, length], 1 for tokens; a row's first position always is one.
        segment_ids: [batch, length], 0 at padding.
    """

    input_ids: tf.Tensor
    mask: tf.Tensor
    segment_ids: tf.Tensor

    @classmethod
    def of_ragged(cls, input_ids: tf.RaggedTensor, segment_ids: tf.RaggedTensor | None = None, pad_id: int = 0) -> Self:
        # The longest of no rows would be the smallest integer.
        size = tf.maximum(input_ids.bounding_shape(), [0, 1])
        mask = tf.sequence_mask(input_ids.row_lengths(), size[1], tf.int32)
        segments = tf.zeros_like(mask) if segment_ids is None else segment_ids.to_tensor(shape=size)
        return cls(input_ids.to_tensor(pad_id, shape=size), mask, segments)

    @property
    def lengths(self) -> tf.Tensor:
        """int32 [batch]."""
        return tf.reduce_sum(self.mask, axis=1)


class Framer(tf.Module):
    """Makes rows of at most `max_seq_length` tokens of strings [batch]."""

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        super().__init__()
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.in_graph = tokenizer.in_graph()
        self.pieces = tf.constant(tokenizer.pieces)

    def tokenize(self, *texts: tf.Tensor) -> list[tf.RaggedTensor]:
        """Ids of several string tensors [batch], all in one pass: a tokenizer is a large graph."""
        tokens = self.in_graph(tf.concat(texts, axis=0))
        ends = tf.math.cumsum(tf.stack([tf.size(one) for one in texts]))
        starts = tf.concat([[0], ends[:-1]], axis=0)
        return [tokens[starts[i] : ends[i]] for i in range(len(texts))]

    def single(self, tokens: tf.RaggedTensor) -> TokenBatch:
        """[CLS] tokens [SEP]; what does not fit is cut off."""
        return self._rows(self.enclose(tokens[:, : self.max_seq_length - 2]))

    def pair(self, first: tf.RaggedTensor, second: tf.RaggedTensor) -> TokenBatch:
        """[CLS] first [SEP] second [SEP], cut at the end of the longer one."""
        # Both segments keep at least half of the room; a short one leaves the rest to the other.
        room = self.max_seq_length - 3
        kept_second = tf.minimum(_lengths(second), tf.maximum(room // 2, room - _lengths(first)))
        return self.join(cut(first, tf.minimum(_lengths(first), room - kept_second)), cut(second, kept_second))

    def choices(self, contexts: tf.RaggedTensor, choices: tf.RaggedTensor) -> TokenBatch:
        """[CLS] context [SEP] choice [SEP]: of a choice its last 128 tokens, the context cut at its end."""
        choices = choices[:, -min(MAX_CHOICE_LENGTH, self.max_seq_length - 3) :]
        room = self.max_seq_length - 3 - _lengths(choices)
        return self.join(cut(contexts, tf.minimum(_lengths(contexts), room)), choices)

    def words(self, pieces: tf.RaggedTensor) -> tuple[TokenBatch, tf.RaggedTensor]:
        """[CLS] the pieces of all words [SEP], what does not fit cut off; a word without a piece becomes [UNK].

        Args:
            pieces: ids [batch, words, pieces], each word tokenized by itself.

        Returns:
            The rows, and the column of each word's first piece, int32 [batch, words]; `max_seq_length` - 1 or more of
            a word that was cut off.
        """
        nothing = tf.cast(pieces.values.row_lengths() == 0, tf.int64)
        unknown = tf.fill([tf.reduce_sum(nothing)], tf.constant(self.tokenizer.unk_id, tf.int32))
        filled = tf.concat([pieces.values, tf.RaggedTensor.from_row_lengths(unknown, nothing, validate=False)], axis=1)
        pieces = pieces.with_values(filled)
        # Behind [CLS] a word begins where all words before it end.
        before = filled.row_starts() - tf.gather(filled.row_splits, tf.gather(pieces.row_splits, pieces.value_rowids()))
        return self.single(pieces.merge_dims(1, 2)), pieces.with_values(tf.cast(before, tf.int32) + 1)

    def join(self, first: tf.RaggedTensor, second: tf.RaggedTensor) -> TokenBatch:
        """[CLS] first [SEP] second [SEP], uncut."""
        left, right = self.enclose(first), self.end(second)
        segments = tf.concat([tf.zeros_like(left), tf.ones_like(right)], axis=1)
        return self._rows(tf.concat([left, right], axis=1), segments)

    def describe(self, rows: TokenBatch) -> dict[str, tf.Tensor]:
        """Rows as the model sees them: `input_ids`, `segment_ids`, `pieces` [batch, length] and `lengths` [batch]."""
        pieces = tf.where(rows.mask > 0, tf.gather(self.pieces, rows.input_ids), "")
        return {
            "input_ids": rows.input_ids,
            "lengths": rows.lengths,
            "pieces": pieces,
            "segment_ids": rows.segment_ids,
        }

    def enclose(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        return tf.concat([self._column(tokens, self.tokenizer.cls_id), self.end(tokens)], axis=1)

    def end(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        return tf.concat([tokens, self._column(tokens, self.tokenizer.sep_id)], axis=1)

    def _column(self, like: tf.RaggedTensor, token: int) -> tf.Tensor:
        return tf.fill([like.nrows(out_type=tf.int32), 1], tf.constant(token, tf.int32))

    def _rows(self, tokens: tf.RaggedTensor, segments: tf.RaggedTensor | None = None) -> TokenBatch:
        return TokenBatch.of_ragged(tokens, segments, self.tokenizer.pad_id)


def cut(tokens: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """Each row's first `lengths[row]` tokens."""
    return tf.RaggedTensor.from_tensor(tokens.to_tensor(), lengths=lengths)


def _lengths(tokens: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(tokens.row_lengths(), tf.int32)


class Windows(NamedTuple):
    """Attributes:
    rows: [CLS] question [SEP] part of the context [SEP], [windows, length].
    row: int32 [windows], the question that each window is of; questions lie end to end.
    token: int32 [windows, length], which of all contexts' tokens, end to end, stands at each position; 0 elsewhere.
    is_context: bool [windows, length].
    is_best: bool [windows, length], of every context token true in one window only, where it has the most context
        (run_squad.py, `_check_is_max_context`, of google-research/bert).
    """

    rows: TokenBatch
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

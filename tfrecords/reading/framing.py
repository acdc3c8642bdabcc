"""Builds model input rows from token ids.

The tokenizer decides the special tokens: RoBERTa's pairs are `<s> first </s></s> second </s>`, all of segment 0. With
the tokenizer's `cls_last`, rows are `first [SEP] second [SEP] [CLS]`, and [CLS] has segment 2, or 0 with `one_segment`.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfrecords.tokenizers.base import Tokenizer
from tfrecords.tokenizers.by_library import tokenize_beginnings

# Tokens of question and choice together (google-research/albert:run_race.py, --max_qa_length).
MAX_CHOICE_LENGTH = 128
# Segment id of a [CLS] at the end of a row.
CLS_SEGMENT = 2


class TokenBatch(NamedTuple):
    """Rows padded at the end, int32 [batch, length]; `mask` is 1 for tokens, `segment_ids` 0 at padding."""

    input_ids: tf.Tensor
    mask: tf.Tensor
    segment_ids: tf.Tensor

    @property
    def lengths(self) -> tf.Tensor:
        return tf.reduce_sum(self.mask, axis=1)


class FramedRows(NamedTuple):
    """Rows before padding, ragged int32 [rows, tokens].

    `segment_ids` is the tokenizer's `second_segment_id` in a second text, 2 for a [CLS] at the end, else 0.
    """

    input_ids: tf.RaggedTensor
    segment_ids: tf.RaggedTensor
    pad_id: int

    def padded(self) -> TokenBatch:
        # reduce_max of no rows is the smallest integer.
        size = tf.maximum(self.input_ids.bounding_shape(), [0, 1])
        mask = tf.sequence_mask(self.input_ids.row_lengths(), size[1], tf.int32)
        return TokenBatch(
            self.input_ids.to_tensor(self.pad_id, shape=size), mask, self.segment_ids.to_tensor(shape=size)
        )


class Windows(NamedTuple):
    """Passages split into overlapping rows [CLS] question [SEP] part of the passage [SEP].

    Attributes:
        rows: one for each window. Other values, if not ragged, are int32 [windows].
        question: index of each window's question and passage, ascending.
        first_column: column of the first passage token.
        first_token: index of that token in its passage.
        size: number of passage tokens.
        token: ragged int32 [windows, tokens]: each token's index in the concatenated passages, or -1.
        is_best: ragged bool [windows, tokens]: True for a token in the one window where it has the most context
            (google-research/bert run_squad.py, `_check_is_max_context`).
    """

    rows: FramedRows
    question: tf.Tensor
    first_column: tf.Tensor
    first_token: tf.Tensor
    size: tf.Tensor
    token: tf.RaggedTensor
    is_best: tf.RaggedTensor

    def padded(self) -> tuple[TokenBatch, tf.Tensor, tf.Tensor]:
        """Returns `rows`, `token` (padded with -1) and `is_best`, padded to the longest row."""
        rows = self.rows.padded()
        size = tf.shape(rows.mask)
        return rows, self.token.to_tensor(-1, shape=size), self.is_best.to_tensor(shape=size)


class Framer:
    """Builds rows of at most `max_seq_length` tokens (5 or more) from ragged token ids, int32 [batch, tokens].

    Example:
        >>> from tfrecords.tokenizers.wordpiece import WordPieceTokenizer
        >>> pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] a good film".replace(" ", "\\n")
        >>> tokenizer = WordPieceTokenizer(pieces.encode())
        >>> rows = Framer(tokenizer, 8).pair(encode(tokenizer, ["a good film"]), encode(tokenizer, ["film"]))
        >>> rows.input_ids.to_list(), rows.segment_ids.to_list()
        ([[2, 5, 6, 7, 3, 7, 3]], [[0, 0, 0, 0, 0, 1, 1]])
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length

    @property
    def mask(self) -> str:
        return self.tokenizer.pieces[self.tokenizer.mask_id]

    @property
    def mask_pattern(self) -> str:
        """Regular expression for the mask token and, in byte-level BPE, the blanks that it takes in."""
        takes_blanks = self.tokenizer.kind == "bpe" and not self.tokenizer.mask_keeps_blank
        return (r"\s*" if takes_blanks else "") + re.escape(self.mask)

    def frame(self, first: tf.RaggedTensor, second: tf.RaggedTensor | None = None) -> FramedRows:
        return self.single(first) if second is None else self.pair(first, second)

    def single(self, tokens: tf.RaggedTensor, cut_left: tf.Tensor | None = None) -> FramedRows:
        """Builds rows [CLS] tokens [SEP], cut at the end, or at the start where `cut_left`, bool [batch], is True."""
        tokenizer, room = self.tokenizer, self.max_seq_length - 2
        if cut_left is None:
            tokens = tokens[:, :room]
        else:
            tokens = _some(tokens, tf.minimum(tokens.row_lengths(), room), cut_left)
        ids = self._between([], tokens)
        return FramedRows(ids, self._segments(ids, ids.values < 0), tokenizer.pad_id)

    def pair(self, first: tf.RaggedTensor, second: tf.RaggedTensor, cut_left: tf.Tensor | None = None) -> FramedRows:
        """Builds rows [CLS] first [SEP] second [SEP], cut on the same side as in `single`.

        The longer text is cut first, as by google-research/albert:classifier_utils.py, `_truncate_seq_pair`; see
        `Tokenizer.odd_to_longer`.
        """
        room, sizes = self._pair_room, (first.row_lengths(), second.row_lengths())
        half = tf.constant(room // 2, tf.int64)
        if self.tokenizer.odd_to_longer and room % 2:
            half += tf.cast(sizes[1] >= sizes[0], tf.int64)
        size = tf.minimum(sizes[1], tf.maximum(room - sizes[0], half))
        return self._join(_some(first, tf.minimum(sizes[0], room - size), cut_left), _some(second, size, cut_left))

    def choices(self, contexts: tf.RaggedTensor, choices: tf.RaggedTensor) -> FramedRows:
        """Builds rows [CLS] context [SEP] choice [SEP], as google-research/albert:race_utils.py:69-147 does.

        A choice keeps at most its last 128 tokens; the context is cut at its end.
        """
        room = self._pair_room
        choices = choices[:, -min(MAX_CHOICE_LENGTH, room) :]
        size = tf.minimum(contexts.row_lengths(), room - choices.row_lengths())
        return self._join(_some(contexts, size), choices)

    def words(self, pieces: tf.RaggedTensor) -> tuple[FramedRows, tf.RaggedTensor]:
        """Builds rows [CLS] pieces of all words [SEP], cut at the end; a word without pieces becomes an unknown token.

        pieces: ragged int32 [batch, words, pieces]. Returns the rows, and each word's first column, ragged int32
        [batch, words]: `max_seq_length` - 1 or more for words cut off.
        """
        words = pieces.values
        nothing = tf.cast(words.row_lengths() == 0, tf.int64)
        unknown = tf.fill([tf.reduce_sum(nothing)], tf.constant(self.tokenizer.unk_id, tf.int32))
        words = tf.concat([words, tf.RaggedTensor.from_row_lengths(unknown, nothing, validate=False)], axis=1)
        pieces = pieces.with_values(words)
        # After a first [CLS], each word begins where the one before ends.
        before = words.row_starts() - tf.gather(words.row_splits, tf.gather(pieces.row_starts(), pieces.value_rowids()))
        before = tf.cast(before, tf.int32)
        columns = before + tf.where(before < self.max_seq_length - 2, self._first_column, 1)
        return self.single(pieces.merge_dims(1, 2)), pieces.with_values(columns)

    def masked(self, parts: tf.RaggedTensor) -> tf.RaggedTensor:
        """Joins the parts of each text with mask tokens: ragged int32 [batch, parts, tokens] to [batch, tokens]."""
        mask = _column(parts.values, self.tokenizer.mask_id)
        # Removes the mask after the last part.
        return parts.with_values(tf.concat([parts.values, mask], axis=1)).merge_dims(1, 2)[:, :-1]

    def windows(
        self, question: tf.RaggedTensor, context: tf.RaggedTensor, doc_stride: int, max_query_length: int
    ) -> Windows:
        """Splits passages into windows `doc_stride` tokens apart, or less if a long question leaves less room.

        Questions are cut to `question_room(max_query_length)` tokens.
        """
        between = self.tokenizer.separators_between
        question = question[:, : self.question_room(max_query_length)]
        sizes = _sizes(context)
        before = _sizes(question) + self._first_column + between
        room = self.max_seq_length - 2 + self._first_column - before
        stride = tf.minimum(doc_stride, room)
        counts = tf.maximum(-((room - sizes) // stride), 0) + 1
        row = tf.repeat(tf.range(tf.size(counts)), counts)
        window = tf.range(tf.size(row))
        first_token = (window - tf.gather(tf.math.cumsum(counts, exclusive=True), row)) * tf.gather(stride, row)
        size = tf.minimum(tf.gather(room, row), tf.gather(sizes, row) - first_token)
        first = tf.gather(tf.cast(context.row_starts(), tf.int32), row) + first_token
        tokens, questions = tf.ragged.range(first, first + size), tf.gather(question, row)
        rows = self._join(questions, tokens.with_values(tf.gather(context.values, tokens.values)))
        nothing = questions.with_values(-tf.ones_like(questions.values))
        token = self._between([-1] * between, nothing, tokens, special=-1)
        owner = _most_context(tokens, first, size, tf.size(context.values))
        is_best = (token.values >= 0) & (
            tf.gather(owner, tf.maximum(token.values, 0)) == tf.cast(token.value_rowids(), tf.int64)
        )
        return Windows(rows, row, tf.gather(before, row), first_token, size, token, token.with_values(is_best))

    def special_tokens(self, texts: int) -> int:
        return 2 + (texts - 1) * self.tokenizer.separators_between

    def question_room(self, max_query_length: int) -> int:
        """Returns the maximum question length in tokens, which leaves at least half of a row to the passage."""
        return min(max_query_length, self.max_seq_length // 2 - 1 - self.tokenizer.separators_between)

    @property
    def _pair_room(self) -> int:
        return self.max_seq_length - self.special_tokens(2)

    @property
    def _first_column(self) -> int:
        return 0 if self.tokenizer.cls_last else 1

    def _join(self, first: tf.RaggedTensor, second: tf.RaggedTensor) -> FramedRows:
        tokenizer, between = self.tokenizer, self.tokenizer.separators_between
        ids = self._between([tokenizer.sep_id] * between, first, second)
        before = self._first_column + _sizes(first) + between
        is_second = _columns(ids) >= tf.gather(before, ids.value_rowids())
        return FramedRows(ids, self._segments(ids, is_second), tokenizer.pad_id)

    def _segments(self, ids: tf.RaggedTensor, is_second: tf.Tensor) -> tf.RaggedTensor:
        segments = tf.cast(is_second, tf.int32) * self.tokenizer.second_segment_id
        if self.tokenizer.cls_last and not self.tokenizer.one_segment:
            is_last = _columns(ids) == tf.gather(_sizes(ids) - 1, ids.value_rowids())
            segments = tf.where(is_last, CLS_SEGMENT, segments)
        return ids.with_values(segments)

    def _between(self, middle: Sequence[int], *texts: tf.RaggedTensor, special: int | None = None) -> tf.RaggedTensor:
        cls, sep = (self.tokenizer.cls_id, self.tokenizer.sep_id) if special is None else (special, special)
        parts = [] if self.tokenizer.cls_last else [_column(texts[0], cls)]
        for number, text in enumerate(texts, 1):
            behind = [sep] if number == len(texts) else middle
            parts += [text, *(_column(text, token) for token in behind)]
        if self.tokenizer.cls_last:
            parts.append(_column(texts[0], cls))
        return tf.concat(parts, axis=1)


class TextFramer(tf.Module, Framer):
    """A `Framer` that also tokenizes strings [batch] in the TensorFlow graph."""

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        tf.Module.__init__(self)
        Framer.__init__(self, tokenizer, max_seq_length)
        self.in_graph = tokenizer.in_graph()
        self.pieces = tf.constant(tokenizer.pieces)

    def tokenize(self, *texts: tf.Tensor) -> list[tf.RaggedTensor]:
        tokens = self.in_graph(tf.concat(texts, axis=0))
        ends = tf.math.cumsum(tf.stack([tf.size(one) for one in texts]))
        starts = tf.concat([[0], ends[:-1]], axis=0)
        return [tokens[starts[i] : ends[i]] for i in range(len(texts))]

    def describe(self, rows: TokenBatch) -> dict[str, tf.Tensor]:
        """Returns the model's input rows by name.

        `input_ids`, `segment_ids` int32 and `pieces` string are [batch, length], `lengths` int32 [batch].
        """
        pieces = tf.where(rows.mask > 0, tf.gather(self.pieces, rows.input_ids), "")
        return {
            "input_ids": rows.input_ids,
            "lengths": rows.lengths,
            "pieces": pieces,
            "segment_ids": rows.segment_ids,
        }


def encode(tokenizer: Tokenizer, texts: Sequence[str], count: int = 0) -> tf.RaggedTensor:
    """Tokenizes in Python, faster than the graph; returns ragged int32 [texts, tokens].

    `count`: tokens of a text that are needed; a very long text is cut to somewhat more. 0: all.
    """
    tokenize = tokenizer.encode_batch
    ids, splits = tokenize_beginnings(tokenize, texts, count) if count else tokenize(texts)
    tokenizer.check_ids(ids)
    return tf.RaggedTensor.from_row_splits(ids, splits, validate=False)


def _most_context(tokens: tf.RaggedTensor, first: tf.Tensor, size: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    windows = tf.size(size, out_type=tf.int64)
    window = tokens.value_rowids()
    place = tokens.values - tf.gather(first, window)
    size = tf.gather(size, window)
    # Hundredths keep ties exact; the remainder prefers earlier windows.
    score = tf.cast(tf.minimum(place, size - 1 - place) * 100 + size, tf.int64) * windows + windows - 1 - window
    best = tf.math.unsorted_segment_max(score, tokens.values, count)
    # tf.gather needs a non-empty source even if all passages are empty.
    return tf.concat([windows - 1 - best % windows, [0]], axis=0)


def _some(tokens: tf.RaggedTensor, sizes: tf.Tensor, last: tf.Tensor | None = None) -> tf.RaggedTensor:
    starts = tokens.row_starts()
    if last is not None:
        starts += tf.where(last, tokens.row_lengths() - sizes, 0)
    places = tf.ragged.range(starts, starts + sizes)
    return places.with_values(tf.gather(tokens.values, places.values))


def _column(like: tf.RaggedTensor, token: int) -> tf.Tensor:
    return tf.fill([like.nrows(out_type=tf.int32), 1], tf.constant(token, tf.int32))


def _columns(ragged: tf.RaggedTensor) -> tf.Tensor:
    places = tf.range(tf.size(ragged.values, out_type=tf.int64))
    return tf.cast(places - tf.gather(ragged.row_starts(), ragged.value_rowids()), tf.int32)


def _sizes(tokens: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(tokens.row_lengths(), tf.int32)

"""Tokens to rows: [CLS] and [SEP] around one text, a pair, choices, words or windows of a passage, cut to a length.

The tokenizer says which ids these are, how many [SEP] stand between two texts, and the second one's segment: RoBERTa's
pairs are `<s> first </s></s> second </s>`, all of segment 0. Where [CLS] is last, rows are `first [SEP] second [SEP]
[CLS]`, with [CLS] a third segment.

Training calls these TensorFlow operations on the ids of the Python tokenizer, an exported graph holds them behind the
tokenizer's own operations: both see the same rows.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tfrecords.tokenizers.base import Tokenizer

# Tokens of question and choice together (google-research/albert:run_race.py, --max_qa_length).
MAX_CHOICE_LENGTH = 128
# Of a [CLS] that is last.
CLS_SEGMENT = 2


class TokenBatch(NamedTuple):
    """Rows padded to the longest; all int32.

    Attributes:
        input_ids: [batch, length], the vocabulary's padding behind a row's tokens.
        mask: [batch, length], 1 for tokens; a row's first position always is one.
        segment_ids: [batch, length], 0 at padding.
    """

    input_ids: tf.Tensor
    mask: tf.Tensor
    segment_ids: tf.Tensor

    @property
    def lengths(self) -> tf.Tensor:
        """The number of tokens of each row, int32 [batch]."""
        return tf.reduce_sum(self.mask, axis=1)


class FramedRows(NamedTuple):
    """Rows, each as long as it is.

    Attributes:
        input_ids: ragged int32 [rows, tokens].
        segment_ids: ragged int32 [rows, tokens]: 0 up to the second text, then the tokenizer's `second_segment_id`; 2
            for a [CLS] at the end.
        pad_id: what `padded` puts behind a row's ids.
    """

    input_ids: tf.RaggedTensor
    segment_ids: tf.RaggedTensor
    pad_id: int

    def padded(self) -> TokenBatch:
        """Pads all rows to the length of the longest."""
        # The longest of no rows would be the smallest integer.
        size = tf.maximum(self.input_ids.bounding_shape(), [0, 1])
        mask = tf.sequence_mask(self.input_ids.row_lengths(), size[1], tf.int32)
        return TokenBatch(
            self.input_ids.to_tensor(self.pad_id, shape=size), mask, self.segment_ids.to_tensor(shape=size)
        )


class Windows(NamedTuple):
    """Passages of any length as rows [CLS] question [SEP] part of the passage [SEP] that overlap.

    Attributes:
        rows: one of each window.
        question: int32 [windows], ascending: the number of the question and passage that a window is of.
        first_column: int32 [windows], the column of the window's first passage token.
        first_token: int32 [windows], the number of that token in its passage.
        size: int32 [windows], the passage tokens in the window.
        token: ragged int32 [windows, tokens], which of all passages' tokens, end to end, stands in each column; -1 for
            the question, [CLS] and [SEP].
        is_best: ragged bool [windows, tokens], for every passage token true in one window only, where it has the most
            context (run_squad.py, `_check_is_max_context`, of google-research/bert).
    """

    rows: FramedRows
    question: tf.Tensor
    first_column: tf.Tensor
    first_token: tf.Tensor
    size: tf.Tensor
    token: tf.RaggedTensor
    is_best: tf.RaggedTensor

    def padded(self) -> tuple[TokenBatch, tf.Tensor, tf.Tensor]:
        """Pads `rows`, `token` (with -1) and `is_best` to the length of the longest row."""
        rows = self.rows.padded()
        size = tf.shape(rows.mask)
        return rows, self.token.to_tensor(-1, shape=size), self.is_best.to_tensor(shape=size)


class Framer:
    """Makes rows of at most `max_seq_length` tokens of ragged token ids, int32 [batch, tokens].

    Args:
        tokenizer: of the ids.
        max_seq_length: of the longest row, in tokens; 5 or more.

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
        """Says what stands for a masked word in a text: the vocabulary's own piece, [MASK] or RoBERTa's `<mask>`."""
        return self.tokenizer.pieces[self.tokenizer.mask_id]

    @property
    def mask_pattern(self) -> str:
        """Gives the regular expression of `mask`, with the blanks that go with it.

        Those of byte-level BPE are in the tokens behind them, and a mask stands for such a token.
        """
        return (r"\s*" if self.tokenizer.kind == "bpe" else "") + re.escape(self.mask)

    def frame(self, first: tf.RaggedTensor, second: tf.RaggedTensor | None = None) -> FramedRows:
        """Makes rows of single texts or of pairs, whichever is given."""
        return self.single(first) if second is None else self.pair(first, second)

    def single(self, tokens: tf.RaggedTensor, cut_left: tf.Tensor | None = None) -> FramedRows:
        """Makes rows [CLS] tokens [SEP]; what does not fit is cut off the end.

        Args:
            tokens: ids, ragged int32 [batch, tokens].
            cut_left: bool [batch], whether a row is cut at its beginning instead; None: no row is.
        """
        tokenizer, room = self.tokenizer, self.max_seq_length - 2
        if cut_left is None:
            tokens = tokens[:, :room]
        else:
            tokens = _some(tokens, tf.minimum(tokens.row_lengths(), room), cut_left)
        ids = self._between([], tokens)
        return FramedRows(ids, self._segments(ids, ids.values < 0), tokenizer.pad_id)

    def pair(self, first: tf.RaggedTensor, second: tf.RaggedTensor, cut_left: tf.Tensor | None = None) -> FramedRows:
        """Makes rows [CLS] first [SEP] second [SEP]; what does not fit is cut off the end of the longer one.

        It is as many tokens as a loop would cut one by one (google-research/albert:classifier_utils.py,
        `_truncate_seq_pair`): both keep at least half of the room, and a short one leaves the rest to the other.
        By `cut_left`, as in `single`, each loses as many tokens at its beginning instead.
        """
        room, sizes = self._pair_room, (first.row_lengths(), second.row_lengths())
        size = tf.minimum(sizes[1], tf.maximum(room - sizes[0], room // 2))
        return self._join(_some(first, tf.minimum(sizes[0], room - size), cut_left), _some(second, size, cut_left))

    def choices(self, contexts: tf.RaggedTensor, choices: tf.RaggedTensor) -> FramedRows:
        """Makes rows [CLS] context [SEP] choice [SEP], of a choice its last 128 tokens, the context cut at its end.

        These are the cuts of google-research/albert:race_utils.py:69-147.
        """
        room = self._pair_room
        choices = choices[:, -min(MAX_CHOICE_LENGTH, room) :]
        size = tf.minimum(contexts.row_lengths(), room - choices.row_lengths())
        return self._join(_some(contexts, size), choices)

    def words(self, pieces: tf.RaggedTensor) -> tuple[FramedRows, tf.RaggedTensor]:
        """Makes rows [CLS] pieces of all words [SEP], cut at the end; a word without a piece becomes an unknown one.

        Args:
            pieces: ids, ragged int32 [batch, words, pieces], each word tokenized by itself.

        Returns:
            The rows, and the column of each word's first piece, ragged int32 [batch, words]; `max_seq_length` - 1 or
            more of a word that was cut off.
        """
        words = pieces.values
        nothing = tf.cast(words.row_lengths() == 0, tf.int64)
        unknown = tf.fill([tf.reduce_sum(nothing)], tf.constant(self.tokenizer.unk_id, tf.int32))
        words = tf.concat([words, tf.RaggedTensor.from_row_lengths(unknown, nothing, validate=False)], axis=1)
        pieces = pieces.with_values(words)
        # Behind [CLS], if it is first, a word begins where all words before it end.
        before = words.row_starts() - tf.gather(words.row_splits, tf.gather(pieces.row_starts(), pieces.value_rowids()))
        before = tf.cast(before, tf.int32)
        columns = before + tf.where(before < self.max_seq_length - 2, self._first_column, 1)
        return self.single(pieces.merge_dims(1, 2)), pieces.with_values(columns)

    def masked(self, parts: tf.RaggedTensor) -> tf.RaggedTensor:
        """Joins the parts of each text by the mask's id: ragged int32 [batch, parts, tokens] to [batch, tokens]."""
        mask = _column(parts.values, self.tokenizer.mask_id)
        # One mask behind every part is one too many.
        return parts.with_values(tf.concat([parts.values, mask], axis=1)).merge_dims(1, 2)[:, :-1]

    def windows(
        self, question: tf.RaggedTensor, context: tf.RaggedTensor, doc_stride: int, max_query_length: int
    ) -> Windows:
        """Makes windows `doc_stride` tokens apart, or less where a long question leaves less room.

        Args:
            question: ids; of a longer one its first `max_query_length` tokens stay, or fewer, so that at least half
                of a row is left for the passage.
            context: ids of the passage to each question.
            doc_stride: in tokens.
            max_query_length: in tokens.
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
        """Returns how many [CLS] and [SEP] a row of so many texts has."""
        return 2 + (texts - 1) * self.tokenizer.separators_between

    def question_room(self, max_query_length: int) -> int:
        """Returns how many tokens of a question `windows` keeps."""
        return min(max_query_length, self.max_seq_length // 2 - 1 - self.tokenizer.separators_between)

    @property
    def _pair_room(self) -> int:
        """Tokens of two texts that fit into a row."""
        return self.max_seq_length - self.special_tokens(2)

    @property
    def _first_column(self) -> int:
        """Of a row's first text."""
        return 0 if self.tokenizer.cls_last else 1

    def _join(self, first: tf.RaggedTensor, second: tf.RaggedTensor) -> FramedRows:
        tokenizer, between = self.tokenizer, self.tokenizer.separators_between
        ids = self._between([tokenizer.sep_id] * between, first, second)
        before = self._first_column + _sizes(first) + between
        is_second = _columns(ids) >= tf.gather(before, ids.value_rowids())
        return FramedRows(ids, self._segments(ids, is_second), tokenizer.pad_id)

    def _segments(self, ids: tf.RaggedTensor, is_second: tf.Tensor) -> tf.RaggedTensor:
        """The segments of rows whose second texts are said, bool [tokens of all rows]."""
        segments = tf.cast(is_second, tf.int32) * self.tokenizer.second_segment_id
        if self.tokenizer.cls_last:
            is_last = _columns(ids) == tf.gather(_sizes(ids) - 1, ids.value_rowids())
            segments = tf.where(is_last, CLS_SEGMENT, segments)
        return ids.with_values(segments)

    def _between(self, middle: Sequence[int], *texts: tf.RaggedTensor, special: int | None = None) -> tf.RaggedTensor:
        """Joins texts: [CLS], a text, `middle` before the next one, and [SEP] behind the last; or [CLS] at the end.

        special: what stands for [CLS] and the last [SEP]; None: their ids.
        """
        cls, sep = (self.tokenizer.cls_id, self.tokenizer.sep_id) if special is None else (special, special)
        parts = [] if self.tokenizer.cls_last else [_column(texts[0], cls)]
        for number, text in enumerate(texts, 1):
            behind = [sep] if number == len(texts) else middle
            parts += [text, *(_column(text, token) for token in behind)]
        if self.tokenizer.cls_last:
            parts.append(_column(texts[0], cls))
        return tf.concat(parts, axis=1)


class TextFramer(tf.Module, Framer):
    """Makes rows of strings [batch] too, with a tokenizer that is in the graph.

    Args:
        tokenizer: which the graph will own.
        max_seq_length: of the longest row, in tokens; 5 or more.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int):
        tf.Module.__init__(self)
        Framer.__init__(self, tokenizer, max_seq_length)
        self.in_graph = tokenizer.in_graph()
        self.pieces = tf.constant(tokenizer.pieces)

    def tokenize(self, *texts: tf.Tensor) -> list[tf.RaggedTensor]:
        """Gives the ids of several string tensors [batch], all in one pass: a tokenizer is a large graph."""
        tokens = self.in_graph(tf.concat(texts, axis=0))
        ends = tf.math.cumsum(tf.stack([tf.size(one) for one in texts]))
        starts = tf.concat([[0], ends[:-1]], axis=0)
        return [tokens[starts[i] : ends[i]] for i in range(len(texts))]

    def describe(self, rows: TokenBatch) -> dict[str, tf.Tensor]:
        """Shows rows as the model sees them.

        Returns:
            `input_ids`, `segment_ids` int32 and `pieces` string, all [batch, length], and `lengths` int32 [batch].
        """
        pieces = tf.where(rows.mask > 0, tf.gather(self.pieces, rows.input_ids), "")
        return {
            "input_ids": rows.input_ids,
            "lengths": rows.lengths,
            "pieces": pieces,
            "segment_ids": rows.segment_ids,
        }


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> tf.RaggedTensor:
    """Tokenizes in Python, which is about a hundred times faster than WordPiece in the graph: int32 [texts, tokens]."""
    ids, splits = tokenizer.encode_batch(texts)
    tokenizer.check_ids(ids)
    return tf.RaggedTensor.from_row_splits(ids, splits, validate=False)


def _most_context(tokens: tf.RaggedTensor, first: tf.Tensor, size: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Finds for each token the window [count] in which the smaller of its left and right contexts is greatest.

    A hundredth of the window's size counts too; among equals the first window wins.
    """
    windows = tf.size(size, out_type=tf.int64)
    window = tokens.value_rowids()
    place = tokens.values - tf.gather(first, window)
    size = tf.gather(size, window)
    # In hundredths, so that equal is equal; below that, how early the window is.
    score = tf.cast(tf.minimum(place, size - 1 - place) * 100 + size, tf.int64) * windows + windows - 1 - window
    best = tf.math.unsorted_segment_max(score, tokens.values, count)
    # Passages without a single token gather nothing but must have something to gather from.
    return tf.concat([windows - 1 - best % windows, [0]], axis=0)


def _some(tokens: tf.RaggedTensor, sizes: tf.Tensor, last: tf.Tensor | None = None) -> tf.RaggedTensor:
    """Cuts each row to its first `sizes[row]` tokens, int64 [batch], or where `last`, bool [batch], is set its last."""
    starts = tokens.row_starts()
    if last is not None:
        starts += tf.where(last, tokens.row_lengths() - sizes, 0)
    places = tf.ragged.range(starts, starts + sizes)
    return places.with_values(tf.gather(tokens.values, places.values))


def _column(like: tf.RaggedTensor, token: int) -> tf.Tensor:
    return tf.fill([like.nrows(out_type=tf.int32), 1], tf.constant(token, tf.int32))


def _columns(ragged: tf.RaggedTensor) -> tf.Tensor:
    """Gives each value's place in its row, int32 [values]."""
    places = tf.range(tf.size(ragged.values, out_type=tf.int64))
    return tf.cast(places - tf.gather(ragged.row_starts(), ragged.value_rowids()), tf.int32)


def _sizes(tokens: tf.RaggedTensor) -> tf.Tensor:
    return tf.cast(tokens.row_lengths(), tf.int32)

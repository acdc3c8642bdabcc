"""Tokenizers as TensorFlow modules with their vocabulary, and spans of words and characters in texts."""

import numpy as np
import tensorflow as tf
import tensorflow_text as text

from tfrecords.tokenizers.expanding_in_graph import characters_and_tokens, expand, is_in, word_of
from tfrecords.tokenizers.normalization import Blanks

# White space of str.split and str.strip.
_SPACES = "".join(character for character in map(chr, range(0x3001)) if character.isspace())
_SPACE = "[" + "".join(rf"\x{{{ord(character):x}}}" for character in _SPACES) + "]"


class SentencePieceInGraph(tf.Module):
    """Tokenizes strings [batch] by SentencePiece to ragged int32 [batch, tokens].

    Custom ops: SentencepieceOp, SentencepieceTokenizeOp (with offsets, SentencepieceTokenizeWithOffsetsOp).
    """

    def __init__(
        self,
        model: bytes,
        expansion_values: np.ndarray,
        expansion_splits: np.ndarray,
        blanks: Blanks | None,
        blank_id: int,
    ):
        super().__init__()
        self._blanks, self._blank_id = blanks or Blanks("", ""), blank_id
        self._tokenizer = text.SentencepieceTokenizer(model=model, out_type=tf.int32)
        self._values, self._splits = stored_once(expansion_values), stored_once(expansion_splits)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = valid(texts)
        ids = self._tokenizer.tokenize(self._with_first_blanks(texts))
        ids = ids.with_flat_values(tf.gather(self._table(), ids.flat_values)).merge_dims(1, 2)
        return self._with_last_blanks(texts, ids, self._blank_id)

    def _with_first_blanks(self, texts: tf.Tensor) -> tf.Tensor:
        if not self._blanks.no_blank_before:
            return texts
        has_none = tf.strings.regex_full_match(texts, self._blanks.no_blank_before)
        return tf.where(has_none, texts, tf.strings.join([" ", texts]))

    def _with_last_blanks(self, texts: tf.Tensor, rows: tf.RaggedTensor, value: tf.Tensor | int) -> tf.RaggedTensor:
        if not self._blanks.last_blank:
            return rows
        more = tf.strings.regex_full_match(texts, self._blanks.last_blank)
        values = tf.boolean_mask(tf.fill(tf.shape(more), value) if isinstance(value, int) else value, more)
        return tf.concat([rows, tf.RaggedTensor.from_row_lengths(values, tf.cast(more, tf.int64))], axis=1)

    def with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        texts = valid(texts)
        longer = self._with_first_blanks(texts)
        ids, begins, ends = self._tokenizer.tokenize_with_offsets(longer)
        rows = ids.value_rowids()
        before = tf.cast(tf.gather(tf.strings.length(longer) - tf.strings.length(texts), rows), tf.int64)
        places = (tf.maximum(tf.cast(part.values, tf.int64) - before, 0) for part in (begins, ends))
        spans = Characters(texts).spans(rows, *places)
        expanded = tf.gather(self._table(), ids.values)
        starts, ends = (tf.gather(tf.cast(span, tf.int32), expanded.value_rowids()) for span in spans)
        # Of a piece that ALBERT splits, the comma at its end is a token of its own.
        split = tf.gather(expanded.row_lengths(), expanded.value_rowids()) > 1
        place = tf.range(tf.size(expanded.values, out_type=tf.int64))
        is_comma = place + 1 == tf.gather(expanded.row_limits(), expanded.value_rowids())
        starts = tf.where(split & is_comma, ends - 1, starts)
        ends = tf.where(split & ~is_comma, ends - 1, ends)
        by_row = ids.with_values(expanded).merge_dims(1, 2)
        size = tf.strings.length(texts, "UTF8_CHAR")
        parts = (by_row, self._blank_id), (by_row.with_values(starts), size - 1), (by_row.with_values(ends), size)
        return tuple(self._with_last_blanks(texts, *part) for part in parts)

    def _table(self) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_row_splits(self._values, self._splits, validate=False)


class WordPieceInGraph(tf.Module):
    """Tokenizes strings [batch] by WordPiece to ragged int32 [batch, tokens].

    Custom op: WordpieceTokenizeWithOffsets.

    tables: results of `characters.character_table` for "all", or for "normal" and "split" if there are `later` tokens.
    longest: words of more characters are unknown. first, later: see `TokenCutter`.
    """

    def __init__(self, ids: dict[str, int], unknown: str, tables: list[tuple], longest: int, first: list, later: list):
        super().__init__()
        self._tables = [tuple(map(stored_once, table)) for table in tables]
        self._longest, self._cut = longest, (first, later)
        unk_id, ids = ids[unknown], ids | {word_of(token): token.id for token in [*first, *later]}
        initializer = tf.lookup.KeyValueTensorInitializer(list(ids), list(ids.values()), tf.string, tf.int64)
        self._table = tf.lookup.StaticHashTable(initializer, unk_id)
        self._unknown = unknown
        self._tokenizer = text.WordpieceTokenizer(
            self._table, unknown_token=self._unknown, max_bytes_per_word=4 * longest
        )

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self.with_offsets(texts)[0]

    def with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        codes, *origins = self._characters(texts)
        # The characters that are no spaces are those of all words, end to end.
        visible = codes.flat_values != ord(" ")
        first, after = (tf.boolean_mask(origin, visible) for origin in origins)
        words = tf.strings.split(tf.strings.unicode_encode(codes, "UTF-8"))
        sizes = tf.strings.length(words.flat_values, "UTF8_CHAR")
        too_long = sizes > self._longest
        short = words.with_flat_values(tf.where(too_long, self._unknown, words.flat_values))
        ids, *offsets = self._tokenizer.tokenize_with_offsets(short)
        word = ids.values.value_rowids()

        def characters(offset: tf.RaggedTensor) -> tf.Tensor:
            sizes_before = tf.cast(offset.flat_values, tf.int32)
            before = tf.strings.substr(tf.gather(words.flat_values, word), tf.zeros_like(sizes_before), sizes_before)
            return tf.strings.length(before, "UTF8_CHAR") + tf.gather(tf.math.cumsum(sizes, exclusive=True), word)

        cut = tf.gather(too_long, word)
        starts, ends = (characters(offset) for offset in offsets)
        ends = tf.where(cut, tf.gather(tf.math.cumsum(sizes), word), ends)
        starts, ends = tf.gather(first, starts), tf.gather(after, ends - 1)
        by_row = tf.cast(ids.merge_dims(1, 2), tf.int32)
        return by_row, by_row.with_values(starts), by_row.with_values(ends)

    def _characters(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        if any(self._cut):
            return characters_and_tokens(texts, self._tables, *self._cut)
        codes = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        expanded, *places = expand(codes, self._tables[0])
        row_starts = tf.gather(codes.row_starts(), tf.gather(codes.value_rowids(), places[0]))
        return expanded, *(tf.cast(place - row_starts, tf.int32) for place in places)


class LoweredInGraph(tf.Module):
    """Lower-cases texts, then tokenizes them by another module; see `Tokenizer.with_lowers_first`."""

    def __init__(self, graph: tf.Module):
        super().__init__()
        self._graph = graph

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._graph(_lowered(valid(texts)))

    def with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        texts = valid(texts)
        codes = tf.strings.unicode_decode(texts, "UTF-8")
        ids, starts, ends = self._graph.with_offsets(_lowered(texts))
        # Only the capital İ becomes two characters.
        columns = tf.repeat(_columns(codes), tf.where(codes.values == ord("İ"), 2, 1))
        sizes = tf.reduce_sum(tf.ones_like(codes) + tf.cast(codes == ord("İ"), tf.int32), axis=1)
        before = tf.gather(tf.math.cumsum(sizes, exclusive=True), ids.value_rowids())
        empty = starts.values == ends.values
        after = tf.gather(columns, tf.maximum(before + ends.values - 1, 0)) + 1
        first = tf.gather(tf.concat([columns, [0]], axis=0), before + starts.values)
        first = tf.where(empty, tf.where(ends.values > 0, after, 0), first)
        return ids, ids.with_values(first), ids.with_values(tf.where(empty, first, after))


def _lowered(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.lower(tf.strings.regex_replace(texts, "\u03a3", "\u03c3"), encoding="utf-8")


class CheckedInGraph(tf.Module):
    """Tokenizes by another module; a call fails with `message` for an id of `rows` or more."""

    def __init__(self, graph: tf.Module, rows: int, message: str):
        super().__init__()
        self._graph, self._rows, self._message = graph, rows, message

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._checked(self._graph(texts))

    def with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        ids, *places = self._graph.with_offsets(texts)
        return self._checked(ids), *places

    def _checked(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        with tf.control_dependencies([tf.debugging.assert_less(ids.flat_values, self._rows, self._message)]):
            return ids.with_flat_values(tf.identity(ids.flat_values))


def stored_once(values: np.ndarray) -> tf.Tensor:
    """Returns a constant that a SavedModel stores once, not in every function."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.constant(values)


def valid(texts: tf.Tensor) -> tf.Tensor:
    """Replaces bytes that are not UTF-8 by U+FFFD, as Python does."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")


def split_words(texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Splits string [batch] like `str.split`; returns words, their starts and ends, int32 [batch, words]."""
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    inside = tf.logical_not(is_in(codes.flat_values, _SPACES))
    columns = _columns(codes)
    first = columns == 0
    begins = inside & (first | tf.logical_not(tf.roll(inside, 1, axis=0)))
    last = tf.concat([first[1:], [True]], axis=0)[: tf.size(first)]
    finishes = inside & (last | tf.logical_not(tf.roll(inside, -1, axis=0)))
    places = codes.with_values(columns)
    starts = tf.ragged.boolean_mask(places, codes.with_values(begins))
    ends = tf.ragged.boolean_mask(places, codes.with_values(finishes)) + 1
    # Without a separator the operation splits at ASCII white space alone.
    return tf.strings.split(tf.strings.regex_replace(texts, _SPACE, " ")), starts, ends


class Characters:
    """Converts byte spans in strings [batch] to spans in characters."""

    def __init__(self, texts: tf.Tensor):
        self.codes, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
        self._row_sizes = tf.cast(tf.strings.length(texts), tf.int64)
        self._row_bytes = tf.math.cumsum(self._row_sizes, exclusive=True)
        self._bytes = offsets.values + tf.gather(self._row_bytes, offsets.value_rowids())
        self._visible = tf.where(tf.logical_not(is_in(self.codes.values, _SPACES)))[:, 0]

    def places(self, rows: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Converts byte spans to spans of the characters that they touch; all int64 [spans]."""
        return self._in_rows(rows, *self._touched(rows, begins, ends))

    def widened(self, rows: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Widens byte spans to whole characters; all int64 [spans]."""
        limits = tf.concat([self._bytes, [tf.reduce_sum(self._row_sizes)]], axis=0)
        base = tf.gather(self._row_bytes, rows)
        starts, ends = (tf.gather(limits, part) - base for part in self._touched(rows, begins, ends))
        return starts, ends

    def _touched(self, rows: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        base = tf.gather(self._row_bytes, rows)
        starts = tf.searchsorted(self._bytes, base + begins, side="right", out_type=tf.int64) - 1
        ends = tf.searchsorted(self._bytes, base + ends, side="left", out_type=tf.int64)
        return tf.maximum(starts, 0), tf.maximum(starts, ends)

    def spans(self, rows: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `places`, without white space at the ends."""
        starts, ends = self._touched(rows, begins, ends)
        # A span of only white space is unchanged.
        after = tf.searchsorted(self._visible, starts, side="left", out_type=tf.int64)
        before = tf.searchsorted(self._visible, ends, side="left", out_type=tf.int64)
        padded = tf.concat([self._visible, [0]], axis=0)
        some = before > after
        starts = tf.where(some, tf.gather(padded, after), starts)
        ends = tf.where(some, tf.gather(padded, tf.maximum(before - 1, 0)) + 1, ends)
        return self._in_rows(rows, starts, ends)

    def _in_rows(self, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        first = tf.gather(self.codes.row_starts(), rows)
        return starts - first, ends - first


def _columns(ragged: tf.RaggedTensor) -> tf.Tensor:
    count = tf.range(tf.size(ragged.values, out_type=tf.int64))
    return tf.cast(count - tf.gather(ragged.row_starts(), ragged.value_rowids()), tf.int32)

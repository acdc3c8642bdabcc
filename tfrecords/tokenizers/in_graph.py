"""The tokenizers as TensorFlow graphs that own their vocabulary, and the places of words and characters in texts.

This and `byte_bpe_in_graph` alone need tensorflow-text. Offsets count characters, as Python does: `text[start:end]` is
the word.
"""

import numpy as np
import tensorflow as tf
import tensorflow_text as text

from tfrecords.tokenizers.characters import ITSELF, MAX_WORD_CHARACTERS, PAGE

# What str.split and str.strip go by.
_SPACES = [code for code in range(0x3001) if chr(code).isspace()]
_SPACE = "[" + "".join(rf"\x{{{code:x}}}" for code in _SPACES) + "]"


class SentencePieceInGraph(tf.Module):
    """SentencePiece on string [batch], giving ragged int32 [batch, tokens].

    Its custom ops are SentencepieceOp and SentencepieceTokenizeOp (SentencepieceTokenizeWithOffsetsOp), which every
    TensorFlow Serving with tensorflow-text has.
    """

    def __init__(self, model: bytes, expansion_values: np.ndarray, expansion_splits: np.ndarray):
        super().__init__()
        self._tokenizer = text.SentencepieceTokenizer(model=model, out_type=tf.int32)
        self._values, self._splits = stored_once(expansion_values), stored_once(expansion_splits)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """ALBERT's digit-comma rule is a table over the vocabulary: most ids stand for themselves."""
        ids = self._tokenizer.tokenize(valid(texts))
        return ids.with_flat_values(tf.gather(self._table(), ids.flat_values)).merge_dims(1, 2)

    def with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Gives ids, and where each starts and ends in its text, in characters: ragged int32 [batch, tokens] each."""
        texts = valid(texts)
        ids, begins, ends = self._tokenizer.tokenize_with_offsets(texts)
        rows = ids.value_rowids()
        spans = Characters(texts).spans(rows, *(tf.cast(part.values, tf.int64) for part in (begins, ends)))
        expanded = tf.gather(self._table(), ids.values)
        starts, ends = (tf.gather(tf.cast(span, tf.int32), expanded.value_rowids()) for span in spans)
        # Of a piece that ALBERT splits, the comma at its end is a token of its own.
        split = tf.gather(expanded.row_lengths(), expanded.value_rowids()) > 1
        place = tf.range(tf.size(expanded.values, out_type=tf.int64))
        is_comma = place + 1 == tf.gather(expanded.row_limits(), expanded.value_rowids())
        starts = tf.where(split & is_comma, ends - 1, starts)
        ends = tf.where(split & ~is_comma, ends - 1, ends)
        by_row = ids.with_values(expanded).merge_dims(1, 2)
        return by_row, by_row.with_values(starts), by_row.with_values(ends)

    def _table(self) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_row_splits(self._values, self._splits, validate=False)


class WordPieceInGraph(tf.Module):
    """WordPiece on string [batch], giving ragged int32 [batch, tokens].

    Its one custom op is WordpieceTokenizeWithOffsets; characters are mapped with core operations, since
    tensorflow-text's own BERT normaliser also folds full-width punctuation, which BERT does not.
    """

    def __init__(self, pieces: list[str], unk_id: int, pages: np.ndarray, rows: np.ndarray, expansions: np.ndarray):
        super().__init__()
        self._pages, self._rows, self._expansions = map(stored_once, (pages, rows, expansions))
        # The table takes no key twice; of equal lines the last counts.
        ids = {piece: token_id for token_id, piece in enumerate(pieces)}
        initializer = tf.lookup.KeyValueTensorInitializer(list(ids), list(ids.values()), tf.string, tf.int64)
        self._table = tf.lookup.StaticHashTable(initializer, unk_id)
        self._unknown = pieces[unk_id]
        self._tokenizer = text.WordpieceTokenizer(
            self._table, unknown_token=self._unknown, max_bytes_per_word=4 * MAX_WORD_CHARACTERS
        )

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self.with_offsets(texts)[0]

    def with_offsets(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Gives ids, and where each starts and ends in its text, in characters: ragged int32 [batch, tokens] each."""
        codes, *origins = self._expand(tf.strings.unicode_decode(texts, "UTF-8", errors="replace"))
        # Words are what spaces leave: the characters that are none, in order, are those of all words end to end.
        visible = codes.flat_values != ord(" ")
        first, after = (tf.boolean_mask(origin, visible) for origin in origins)
        words = tf.strings.split(tf.strings.unicode_encode(codes, "UTF-8"))
        sizes = tf.strings.length(words.flat_values, "UTF8_CHAR")
        too_long = sizes > MAX_WORD_CHARACTERS
        short = words.with_flat_values(tf.where(too_long, self._unknown, words.flat_values))
        ids, *offsets = self._tokenizer.tokenize_with_offsets(short)
        word = ids.values.value_rowids()

        def characters(offset: tf.RaggedTensor) -> tf.Tensor:
            """Bytes of the word before `offset` as characters of all words before it."""
            sizes_before = tf.cast(offset.flat_values, tf.int32)
            before = tf.strings.substr(tf.gather(words.flat_values, word), tf.zeros_like(sizes_before), sizes_before)
            return tf.strings.length(before, "UTF8_CHAR") + tf.gather(tf.math.cumsum(sizes, exclusive=True), word)

        cut = tf.gather(too_long, word)
        starts, ends = (characters(offset) for offset in offsets)
        ends = tf.where(cut, tf.gather(tf.math.cumsum(sizes), word), ends)
        starts, ends = tf.gather(first, starts), tf.gather(after, ends - 1)
        by_row = tf.cast(ids.merge_dims(1, 2), tf.int32)
        return by_row, by_row.with_values(starts), by_row.with_values(ends)

    def _expand(self, codes: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Expands every character (see `characters.character_table`), and says where in its text each result lies.

        The places are int32 [results]; a character without expansion belongs to the result before it.
        """
        flat = codes.flat_values
        rows = tf.gather(self._rows, tf.gather(self._pages, flat // PAGE) * PAGE + flat % PAGE)
        expanded = tf.gather(self._expansions, rows)
        expanded = tf.where(expanded == ITSELF, flat[:, None], expanded)
        present = expanded > 0
        lengths = tf.reduce_sum(tf.cast(present, tf.int64), axis=1)
        by_character = tf.RaggedTensor.from_row_lengths(tf.boolean_mask(expanded, present), lengths, validate=False)
        origins = by_character.value_rowids()
        row_starts, row_limits = (
            tf.gather(limits, tf.gather(codes.value_rowids(), origins))
            for limits in (codes.row_starts(), codes.row_limits())
        )
        expanded_ones = tf.where(lengths > 0)[:, 0]
        following = tf.searchsorted(expanded_ones, origins, side="right", out_type=tf.int64)
        ends = tf.gather(tf.concat([expanded_ones, [tf.int64.max]], axis=0), following)
        place = tf.range(tf.size(origins, out_type=tf.int64)) + 1
        is_last = place == tf.gather(by_character.row_limits(), origins)
        ends = tf.where(is_last, tf.minimum(ends, row_limits), origins + 1)
        starts, ends = origins - row_starts, ends - row_starts
        expanded_codes = codes.with_flat_values(by_character).merge_dims(1, 2)
        return expanded_codes, tf.cast(starts, tf.int32), tf.cast(ends, tf.int32)


def stored_once(values: np.ndarray) -> tf.Tensor:
    """Makes a table that the functions of a SavedModel take as an input, where each would hold a copy of an array."""
    with tf.init_scope(), tf.device("CPU:0"):
        return tf.constant(values)


def valid(texts: tf.Tensor) -> tf.Tensor:
    """Reads bytes that are not UTF-8 as Python does, which SentencePiece itself does not."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")


def split_words(texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """Splits string [batch] as `str.split`: words (string), their starts and ends, int32 [batch, words]."""
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    inside = tf.logical_not(_is_in(codes.flat_values, _SPACES))
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
    """The characters of string [batch], end to end over the batch."""

    def __init__(self, texts: tf.Tensor):
        self.codes, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
        self._row_sizes = tf.cast(tf.strings.length(texts), tf.int64)
        self._row_bytes = tf.math.cumsum(self._row_sizes, exclusive=True)
        self._bytes = offsets.values + tf.gather(self._row_bytes, offsets.value_rowids())
        self._visible = tf.where(tf.logical_not(_is_in(self.codes.values, _SPACES)))[:, 0]

    def places(self, rows: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Turns byte spans [n] of the rows' texts into spans of the characters that they touch; all int64."""
        starts, ends = self._touched(rows, begins, ends)
        first = tf.gather(self.codes.row_starts(), rows)
        return starts - first, ends - first

    def widened(self, rows: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Widens byte spans [n] of the rows' texts to the whole characters that they touch; all int64."""
        limits = tf.concat([self._bytes, [tf.reduce_sum(self._row_sizes)]], axis=0)
        base = tf.gather(self._row_bytes, rows)
        starts, ends = (tf.gather(limits, part) - base for part in self._touched(rows, begins, ends))
        return starts, ends

    def _touched(self, rows: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Spans of the characters of all texts."""
        base = tf.gather(self._row_bytes, rows)
        starts = tf.searchsorted(self._bytes, base + begins, side="right", out_type=tf.int64) - 1
        ends = tf.searchsorted(self._bytes, base + ends, side="left", out_type=tf.int64)
        return tf.maximum(starts, 0), tf.maximum(starts, ends)

    def spans(self, rows: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Turns byte spans [n] of the rows' texts into character spans, less white space around them; all int64."""
        starts, ends = self._touched(rows, begins, ends)
        # A span of nothing but white space stays what it is.
        after = tf.searchsorted(self._visible, starts, side="left", out_type=tf.int64)
        before = tf.searchsorted(self._visible, ends, side="left", out_type=tf.int64)
        padded = tf.concat([self._visible, [0]], axis=0)
        some = before > after
        starts = tf.where(some, tf.gather(padded, after), starts)
        ends = tf.where(some, tf.gather(padded, tf.maximum(before - 1, 0)) + 1, ends)
        first = tf.gather(self.codes.row_starts(), rows)
        return starts - first, ends - first


def _is_in(codes: tf.Tensor, listed: list[int]) -> tf.Tensor:
    return tf.reduce_any(codes[:, tf.newaxis] == tf.constant(listed, codes.dtype), axis=1)


def _columns(ragged: tf.RaggedTensor) -> tf.Tensor:
    """int32 [values]: each value's place in its row."""
    count = tf.range(tf.size(ragged.values, out_type=tf.int64))
    return tf.cast(count - tf.gather(ragged.row_starts(), ragged.value_rowids()), tf.int32)

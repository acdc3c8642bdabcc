"""Where words and characters of texts are, with core TensorFlow operations only. Offsets count characters, as Python
does: `text[start:end]` is the word."""

import tensorflow as tf

_SPACES = [*range(9, 14), 32]
# What str.strip() takes away.
_ALL_SPACES = [code for code in range(0x3001) if chr(code).isspace()]


def split_words(texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
    """string [batch] to what stands between ASCII white space: words (string), starts and ends int32 [batch, None]."""
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    inside = tf.logical_not(_is_in(codes.flat_values, _SPACES))
    first = _first_of_row(codes)
    begins = inside & (first | tf.logical_not(_shift(inside, 1)))
    last = tf.concat([first[1:], [True]], axis=0)[: tf.size(first)]
    finishes = inside & (last | tf.logical_not(_shift(inside, -1)))
    columns = codes.with_values(_columns(codes))
    starts = tf.ragged.boolean_mask(columns, codes.with_values(begins))
    ends = tf.ragged.boolean_mask(columns, codes.with_values(finishes)) + 1
    return tf.strings.split(texts), starts, ends


class Characters:
    """The characters of string [batch], end to end over the batch."""

    def __init__(self, texts: tf.Tensor):
        self.codes, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
        sizes = tf.cast(tf.strings.length(texts), tf.int64)
        self._row_bytes = tf.math.cumsum(sizes, exclusive=True)
        self._bytes = offsets.values + tf.gather(self._row_bytes, offsets.value_rowids())
        self._visible = tf.where(tf.logical_not(_is_in(self.codes.values, _ALL_SPACES)))[:, 0]

    def spans(self, rows: tf.Tensor, begins: tf.Tensor, ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Byte spans [n] of the rows' texts as character spans, white space around them left out; all int64."""
        base = tf.gather(self._row_bytes, rows)
        starts = tf.searchsorted(self._bytes, base + begins, side="right", out_type=tf.int64) - 1
        ends = tf.searchsorted(self._bytes, base + ends, side="left", out_type=tf.int64)
        starts, ends = tf.maximum(starts, 0), tf.maximum(starts, ends)
        # A span of nothing but white space stays what it is.
        after = tf.searchsorted(self._visible, starts, side="left", out_type=tf.int64)
        before = tf.searchsorted(self._visible, ends, side="left", out_type=tf.int64)
        padded = tf.concat([self._visible, [0]], axis=0)
        some = before > after
        starts = tf.where(some, tf.gather(padded, after), starts)
        ends = tf.where(some, tf.gather(padded, tf.maximum(before - 1, 0)) + 1, ends)
        first = tf.gather(self.codes.row_starts(), rows)
        return starts - first, ends - first


def _is_in(codes: tf.Tensor, wanted: list[int]) -> tf.Tensor:
    return tf.reduce_any(codes[:, tf.newaxis] == tf.constant(wanted, codes.dtype), axis=1)


def _columns(ragged: tf.RaggedTensor) -> tf.Tensor:
    """int32 [values]: each value's place in its row."""
    count = tf.range(tf.size(ragged.values, out_type=tf.int64))
    return tf.cast(count - tf.gather(ragged.row_starts(), ragged.value_rowids()), tf.int32)


def _first_of_row(ragged: tf.RaggedTensor) -> tf.Tensor:
    return _columns(ragged) == 0


def _shift(values: tf.Tensor, by: int) -> tf.Tensor:
    return tf.roll(values, by, axis=0)

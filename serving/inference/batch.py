"""Where the computed tokens of a batch come from, and how answers get back into the batch's places."""

import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from serving.inference.tables import missing, ranges


class FlatBatch:
    """Where the computed tokens of a batch come from.

    Args:
        mask: bool [batch, length], the real tokens. A row without any counts its first as real. Where the last token
            stands for a row and padding is skipped, a row's tokens lie one behind the other, anywhere in it.
        config: of the encoder.
        skip_padding: whether padding is left out of all products, or is computed and masked.
        one_row: whether it has but one row; then its padding is left out.

    Attributes:
        mask: as given, with a token in each row.
        masked: the same where padding is computed; else None.
        order: int32 [batch], the batch's number of each row; shorter rows first where padding is left out.
        lengths: int32 [batch], how many tokens of each of these rows are computed.
        cells: int32 [tokens], where each token is in the flat batch.
        computed: the same, and, where padding is left out, once more cell 0 for all tokens that the products' sizes
            are rounded up by.
    """

    lengths: Tensor
    masked: Tensor | None = None

    def __init__(self, mask: Tensor, config: AlbertConfig, skip_padding: bool, one_row: bool = False):
        self.size, self.length = tf.unstack(tf.shape(mask))
        self.mask = mask = mask | _first_tokens(mask, config.spec.last_token)
        if one_row:
            self.order, self.cells = tf.range(self.size), tf.cast(tf.where(mask[0])[:, 0], tf.int32)
        elif skip_padding:
            lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
            self.order = tf.argsort(lengths, stable=True)
            self.lengths = tf.gather(lengths, self.order)
            real = tf.cast(tf.where(tf.reshape(mask, [-1]))[:, 0], tf.int32)
            starts = tf.gather(tf.cumsum(lengths, exclusive=True), self.order)
            self.cells = tf.gather(real, ranges(starts, self.lengths))
        else:
            self.order, self.cells, self.masked = tf.range(self.size), tf.range(self.size * self.length), mask
            self.lengths, self.computed = tf.fill([self.size], self.length), self.cells
            return
        self.computed = tf.pad(self.cells, [[0, missing(tf.size(self.cells))]])

    def restore(self, of_rows: Tensor) -> Tensor:
        """Puts [rows, ...] into the batch's order."""
        if self.masked is not None:
            return of_rows
        return tf.gather(of_rows, tf.math.invert_permutation(self.order))

    def rectangle(self, values: Tensor) -> Tensor:
        """Puts [computed tokens, ...] into the batch's places, float32, zeros where nothing was computed."""
        width = values.shape[1:]
        if self.masked is not None:
            return tf.reshape(tf.cast(values, tf.float32), [self.size, self.length, *width])
        values = tf.cast(values[: tf.size(self.cells)], tf.float32)
        flat = tf.scatter_nd(self.cells[:, tf.newaxis], values, [self.size * self.length, *width])
        return tf.reshape(flat, [self.size, self.length, *width])


def _first_tokens(mask: Tensor, last_token: bool) -> Tensor:
    """Which tokens count as real, whatever the mask says: bool, broadcast to [batch, length].

    That is each row's first; where padding may be in front of a row, only if it has no other.
    """
    is_first = tf.range(tf.shape(mask)[1]) == 0
    return is_first & ~tf.reduce_any(mask, axis=1, keepdims=True) if last_token else is_first

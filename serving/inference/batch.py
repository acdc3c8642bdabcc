"""From a padded batch to the tokens that are computed, and back."""

import tensorflow as tf

from albert_tf.config import AlbertConfig
from serving.inference.rows import Rows, make_tables, missing, ranges


class Batch:
    """Where the computed tokens of a batch come from.

    Args:
        mask: bool [batch, length], the real tokens. A row without any counts its first as real.
        config: of the encoder.
        skip_padding: whether padding is left out of all products, or is computed and masked.

    Attributes:
        mask: as given, with each row's first token.
        rows: the Rows of the tokens, shorter ones first.
        order: int32 [batch], the batch's number of each of the rows.
        cells: int32 [tokens], where each token is in the flat batch.
        computed: the same, and, where padding is left out, once more cell 0 for all tokens that the products' sizes
            are rounded up by.
    """

    def __init__(self, mask: tf.Tensor, config: AlbertConfig, skip_padding: bool):
        self.config = config
        self.size, self.length = tf.unstack(tf.shape(mask))
        self.mask = mask = mask | (tf.range(self.length) == 0)
        if not skip_padding:
            self.order, self.cells = tf.range(self.size), tf.range(self.size * self.length)
            self.computed = self.cells
            self.rows = Rows(make_tables(tf.fill([self.size], self.length), config, mask), config)
            return
        lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
        self.order = tf.argsort(lengths, stable=True)
        ordered = tf.gather(lengths, self.order)
        real = tf.cast(tf.where(tf.reshape(mask, [-1]))[:, 0], tf.int32)
        self.cells = tf.gather(real, ranges(tf.gather(tf.cumsum(lengths, exclusive=True), self.order), ordered))
        self.computed = tf.pad(self.cells, [[0, missing(tf.size(self.cells))]])
        self.rows = Rows(make_tables(ordered, config), config)

    def restore(self, of_rows: tf.Tensor) -> tf.Tensor:
        """[batch, hidden_size] in the order of `rows` to float32 in the batch's."""
        return tf.cast(tf.gather(of_rows, tf.math.invert_permutation(self.order)), tf.float32)

    def rectangle(self, hidden: tf.Tensor) -> tf.Tensor:
        """[computed tokens, hidden_size] in the batch's places, float32, zeros where nothing was computed."""
        hidden = hidden[: tf.size(self.cells)]
        flat = tf.scatter_nd(
            self.cells[:, tf.newaxis], tf.cast(hidden, tf.float32), [self.size * self.length, self.config.hidden_size]
        )
        return tf.reshape(flat, [self.size, self.length, self.config.hidden_size])

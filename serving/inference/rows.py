"""Which tokens are computed, and how attention finds the tokens of one row.

Tokens lie one after another, [tokens, hidden_size], rows in order of length; only attention needs rectangles. It takes
them out of the flat product and puts them back by one gather each, which also does what transposes between tokens and
heads would do.
"""

from typing import NamedTuple

import tensorflow as tf

from albert_tf.config import AlbertConfig

MASKED_SCORE = -10000.0
# Rows of up to these lengths share a block, padded to the longest of them. Longer rows only share one with their
# equals: there a masked score costs more than one more block.
BLOCK_LENGTHS = (8, 12, 16, 24, 32, 48, 64, 96)


class Blocks(NamedTuple):
    """Rectangles of attention, int32 [blocks + 1]; the last is empty, so that a batch of no rows has a first block."""

    rows: tf.Tensor
    length: tf.Tensor
    is_masked: tf.Tensor
    first_cell: tf.Tensor


class Rows:
    """The rows of one batch.

    Args:
        mask: bool [batch, length], the real tokens. A row without any counts its first as real.
        config: of the encoder.
        skip_padding: whether padding is left out of all products, or is computed and masked.
    """

    def __init__(self, mask: tf.Tensor, config: AlbertConfig, skip_padding: bool):
        self.config, self.heads = config, config.num_attention_heads
        self.batch, self.length = tf.unstack(tf.shape(mask))
        mask = mask | (tf.range(self.length) == 0)
        real = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
        computed = real if skip_padding else tf.fill([self.batch], self.length)
        self.order = tf.argsort(computed, stable=True)
        self.lengths = tf.gather(computed, self.order)
        self.starts = tf.cumsum(self.lengths, exclusive=True)
        cells = tf.reshape(tf.where(tf.reshape(mask, [-1]))[:, 0], [-1])
        if skip_padding:
            first = tf.gather(tf.cumsum(real, exclusive=True), self.order)
            self.cells = tf.gather(tf.cast(cells, tf.int32), _ranges(first, self.lengths))
            self._make_blocks(_block_keys(self.lengths))
            self.bias = tf.where(_ranges(-self.lengths, self.block_lengths) < 0, 0.0, MASKED_SCORE)
        else:
            self.cells = tf.range(self.batch * self.length)
            self._make_blocks(tf.zeros_like(self.lengths))
            self.blocks = self.blocks._replace(is_masked=tf.fill([2], ~tf.reduce_all(mask)))
            self.bias = tf.reshape(tf.where(mask, 0.0, MASKED_SCORE), [-1])
        self._make_indices()

    def _make_blocks(self, keys: tf.Tensor) -> None:
        _, block_of_row, counts = tf.unique_with_counts(keys)
        ends = tf.cumsum(counts)
        longest, shortest = tf.gather(self.lengths, ends - 1), tf.gather(self.lengths, ends - counts)
        self.num_blocks = tf.size(counts)
        self.block_lengths = tf.gather(longest, block_of_row)
        cells = tf.cumsum(counts * longest)
        self.blocks = Blocks(
            rows=tf.pad(counts, [[0, 1]]),
            length=tf.pad(longest, [[0, 1]]),
            is_masked=tf.pad(longest != shortest, [[0, 1]]),
            first_cell=tf.pad(cells, [[1, 0]]),
        )

    def _make_indices(self) -> None:
        """Where each (row, head, position) of a block lies among all tokens' heads, and the way back."""
        heads = tf.range(self.heads)
        per_token = 3 * self.heads
        starts = tf.reshape(self.starts[:, tf.newaxis] * per_token + heads, [-1])
        counts = tf.repeat(self.block_lengths, self.heads)
        index = tf.ragged.range(starts, starts + counts * per_token, per_token).flat_values
        # A block's padding reads the tokens that follow, whatever they are: as keys they are masked.
        query = tf.minimum(index, tf.size(self.cells) * per_token - 1 - 2 * self.heads)
        self.index = query, query + self.heads, query + 2 * self.heads
        first = tf.cumsum(self.block_lengths, exclusive=True) * self.heads
        first = tf.reshape(first + heads[:, tf.newaxis] * self.block_lengths, [-1])
        back = tf.reshape(_ranges(first, tf.tile(self.lengths, [self.heads])), [self.heads, -1])
        self.back = tf.transpose(back)

    def attend(self, query_key_value: tf.Tensor) -> tf.Tensor:
        """[tokens, 3 * hidden_size], the query scaled, to contexts [tokens, hidden_size]."""
        flat = tf.reshape(query_key_value, [-1, self.config.head_size])
        first = self._attend_block(flat, 0)
        contexts = tf.cond(self.num_blocks <= 1, lambda: first, lambda: self._attend_others(flat, first))
        return tf.reshape(tf.gather(contexts, self.back), [-1, self.config.hidden_size])

    def _attend_others(self, flat: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
        contexts = tf.TensorArray(
            flat.dtype, self.num_blocks, infer_shape=False, element_shape=[None, self.config.head_size]
        )
        contexts = tf.while_loop(
            lambda block, contexts: block < self.num_blocks,
            lambda block, contexts: (block + 1, contexts.write(block, self._attend_block(flat, block))),
            (1, contexts.write(0, first)),
        )[1]
        return contexts.concat()

    def _attend_block(self, flat: tf.Tensor, block: tf.Tensor | int) -> tf.Tensor:
        rows, length, is_masked, cell = (table[block] for table in self.blocks)
        shape = [rows, self.heads, length]
        count = rows * length

        def take(index):
            return tf.gather(flat, tf.reshape(tf.slice(index, [cell * self.heads], [count * self.heads]), shape))

        query, key, value = map(take, self.index)
        scores = tf.matmul(query, key, transpose_b=True)

        def masked():
            bias = tf.reshape(tf.slice(self.bias, [cell], [count]), [rows, 1, 1, length])
            return scores + tf.cast(bias, scores.dtype)

        probabilities = tf.nn.softmax(tf.cond(is_masked, masked, lambda: scores))
        return tf.reshape(tf.matmul(probabilities, value), [-1, self.config.head_size])

    def first_tokens(self, hidden: tf.Tensor) -> tf.Tensor:
        """The first token of every row, in the batch's order: [batch, hidden_size]."""
        return tf.gather(hidden, tf.gather(self.starts, tf.math.invert_permutation(self.order)))

    def rectangle(self, hidden: tf.Tensor) -> tf.Tensor:
        """[tokens, hidden_size] in the batch's places, zeros where nothing was computed."""
        flat = tf.scatter_nd(self.cells[:, tf.newaxis], hidden, [self.batch * self.length, self.config.hidden_size])
        return tf.reshape(flat, [self.batch, self.length, self.config.hidden_size])


def _block_keys(lengths: tf.Tensor) -> tf.Tensor:
    """Equal numbers for rows that share a block; lengths ascend."""
    shared = tf.searchsorted(tf.constant(BLOCK_LENGTHS), lengths)
    return tf.where(lengths > BLOCK_LENGTHS[-1], lengths, shared)


def _ranges(starts: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """starts[0], starts[0] + 1, ... (counts[0] of them), starts[1], ..., in one vector."""
    return tf.ragged.range(starts, starts + counts).flat_values

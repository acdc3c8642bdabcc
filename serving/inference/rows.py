"""How attention finds the tokens of one row among tokens that lie one after another, [tokens, hidden_size].

Only attention needs rectangles. It takes them out of the flat product and puts them back by one gather each, which
also does what transposes between tokens and heads would do.
"""

from typing import NamedTuple

import tensorflow as tf

from albert_tf.config import AlbertConfig

MASKED_SCORE = -10000.0
# Rows of up to these lengths share a block, padded to the longest of them. Longer rows only share one with their
# equals: there a masked score costs more than one more block.
BLOCK_LENGTHS = (8, 12, 16, 24, 32, 48, 64, 96)


class Blocks(NamedTuple):
    """Rectangles of attention, int32 (bool) [blocks + 1]; the last is empty: a batch of no rows has a first block."""

    rows: tf.Tensor
    length: tf.Tensor
    is_masked: tf.Tensor
    first_cell: tf.Tensor


class Rows:
    """Some rows, shorter ones first.

    Args:
        lengths: int32 [rows], ascending: how many tokens of each row lie there.
        config: of the encoder.
        mask: bool [rows, length] where some of those tokens are padding to be masked; all lengths are equal then.
    """

    def __init__(self, lengths: tf.Tensor, config: AlbertConfig, mask: tf.Tensor | None = None):
        self.lengths, self.config, self.heads = lengths, config, config.num_attention_heads
        self.starts = tf.cumsum(lengths, exclusive=True)
        self._make_blocks()
        self._make_indices()
        if mask is None:
            self.bias = tf.where(ranges(-lengths, self.block_lengths) < 0, 0.0, MASKED_SCORE)
        else:
            self.blocks = self.blocks._replace(is_masked=self.blocks.is_masked | ~tf.reduce_all(mask))
            self.bias = tf.reshape(tf.where(mask, 0.0, MASKED_SCORE), [-1])

    def _make_blocks(self) -> None:
        _, block_of_row, counts = tf.unique_with_counts(_block_keys(self.lengths))
        ends = tf.cumsum(counts)
        longest, shortest = tf.gather(self.lengths, ends - 1), tf.gather(self.lengths, ends - counts)
        self.num_blocks = tf.size(counts)
        self.block_lengths = tf.gather(longest, block_of_row)
        self.blocks = Blocks(
            rows=tf.pad(counts, [[0, 1]]),
            length=tf.pad(longest, [[0, 1]]),
            is_masked=tf.pad(longest != shortest, [[0, 1]]),
            first_cell=tf.pad(tf.cumsum(counts * longest), [[1, 0]]),
        )

    def _make_indices(self) -> None:
        """Where each (row, head, position) of a block lies among all tokens' heads, and the way back."""
        heads = tf.range(self.heads)
        per_token = 3 * self.heads
        starts = tf.reshape(self.starts[:, tf.newaxis] * per_token + heads, [-1])
        counts = tf.reshape(tf.tile(self.block_lengths[:, tf.newaxis], [1, self.heads]), [-1])
        index = tf.ragged.range(starts, starts + counts * per_token, per_token).flat_values
        # A block's padding reads the tokens that follow, whatever they are: as keys they are masked.
        query = tf.minimum(index, (tf.reduce_sum(self.lengths) - 1) * per_token + self.heads - 1)
        self.index = query, query + self.heads, query + 2 * self.heads
        first = tf.cumsum(self.block_lengths, exclusive=True) * self.heads
        first = tf.reshape(first + heads[:, tf.newaxis] * self.block_lengths, [-1])
        self.back = tf.transpose(tf.reshape(ranges(first, tf.tile(self.lengths, [self.heads])), [self.heads, -1]))

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


def _block_keys(lengths: tf.Tensor) -> tf.Tensor:
    """Equal numbers for rows that share a block."""
    shared = tf.searchsorted(tf.constant(BLOCK_LENGTHS), lengths)
    return tf.where(lengths > BLOCK_LENGTHS[-1], lengths, shared)


def ranges(starts: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """starts[0], starts[0] + 1, ... (counts[0] of them), starts[1], ..., in one vector."""
    return tf.ragged.range(starts, starts + counts).flat_values

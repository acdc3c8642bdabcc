"""Index tables by which attention gathers each row's tokens and writes results back."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig

# Added to the scores of keys that are not attended to. The -10,000 of training lets through what scores more than that.
MASKED_SCORE = -1e30
# Numbers of tokens are rounded up to these sizes: oneDNN compiles and keeps a kernel of every product for every size in
# each thread, which takes 280 MB for 400 sizes. Multiples of 4; from 32 on, of 8; from 128 on, eight per doubling.
_BY_OCTAVE = [step * count for step in 2 ** np.arange(4, 18) for count in range(8, 16)]
SIZES = np.array([*range(0, 32, 4), *range(32, 128, 8), *_BY_OCTAVE], np.int32)


class Tables(NamedTuple):
    """The index tables of rows, sorted by ascending length.

    A block is all rows that attention pads to one length. Fields block_* are [blocks + 1]: the last block is empty.
    """

    lengths: Tensor  # [rows]
    starts: Tensor  # [rows], their first tokens
    num_blocks: Tensor
    block_rows: Tensor
    block_length: Tensor
    block_is_masked: Tensor
    block_first_cell: Tensor
    # Where each (row, head, position) of a block lies among all tokens' heads, and the way back.
    query: Tensor
    key: Tensor
    value: Tensor
    back: Tensor
    bias: Tensor
    # The first row of each block, where the last token stands for a row.
    block_first_row: Tensor = ()


def make_tables(lengths: Tensor, block_lengths: Tensor, config: AlbertConfig) -> Tables:
    """Returns the tables of rows with `lengths` int32 [rows], ascending.

    `block_lengths` are the lengths to which attention pads the rows.
    """
    starts = tf.cumsum(lengths, exclusive=True)
    longest, _, counts = tf.unique_with_counts(block_lengths)
    is_masked = tf.gather(lengths, tf.cumsum(counts, exclusive=True)) != longest
    query, back = _indices(lengths, starts, block_lengths, config.num_attention_heads)
    return Tables(
        lengths=lengths,
        starts=starts,
        num_blocks=tf.size(counts),
        block_rows=tf.pad(counts, [[0, 1]]),
        block_length=tf.pad(longest, [[0, 1]]),
        block_is_masked=tf.pad(is_masked, [[0, 1]]),
        block_first_cell=tf.pad(tf.cumsum(counts * longest), [[1, 0]]),
        query=query,
        key=query + config.num_attention_heads,
        value=query + 2 * config.num_attention_heads,
        back=tf.pad(back, [[0, missing(tf.reduce_sum(lengths))], [0, 0]]),
        bias=tf.where(ranges(-lengths, block_lengths) < 0, 0.0, MASKED_SCORE),
        block_first_row=tf.pad(tf.cumsum(counts), [[1, 0]]) if config.spec.last_token else (),
    )


def _indices(lengths, starts, block_lengths, num_heads: int) -> tuple[Tensor, Tensor]:
    heads, per_token = tf.range(num_heads), 3 * num_heads
    firsts = tf.reshape(starts[:, tf.newaxis] * per_token + heads, [-1])
    counts = tf.reshape(tf.tile(block_lengths[:, tf.newaxis], [1, num_heads]), [-1])
    index = tf.ragged.range(firsts, firsts + counts * per_token, per_token).flat_values
    more = beyond(tf.reshape(tf.tile(lengths[:, tf.newaxis], [1, num_heads]), [-1]), counts)
    query = index - more * per_token
    first = tf.cumsum(block_lengths, exclusive=True) * num_heads
    first = tf.reshape(first + heads[:, tf.newaxis] * block_lengths, [-1])
    back = tf.transpose(tf.reshape(ranges(first, tf.tile(lengths, [num_heads])), [num_heads, -1]))
    return query, back


def beyond(lengths: Tensor, block_lengths: Tensor) -> Tensor:
    """Returns the distance of each padded position from its row's last token; 0 for the row's own tokens.

    Padding reads that last token, not another row: NaN or infinity there would give NaN even with weight 0.
    """
    return tf.maximum(ranges(1 - lengths, block_lengths), 0)


def round_up(counts: Tensor) -> Tensor:
    """Rounds each number of an int32 vector up to one in SIZES; larger numbers stay."""
    return tf.maximum(tf.gather(SIZES, tf.minimum(tf.searchsorted(SIZES, counts), len(SIZES) - 1)), counts)


def longest_block(length: int) -> int:
    """Returns the length to which attention pads a row."""
    return max(length, int(SIZES[min(np.searchsorted(SIZES, length), len(SIZES) - 1)]))


def missing(count: Tensor) -> Tensor:
    """Returns how much `round_up` adds to a number."""
    return round_up(count[tf.newaxis])[0] - count


def ranges(starts: Tensor, counts: Tensor) -> Tensor:
    """Concatenates ranges: `counts[0]` numbers from `starts[0]`, then `counts[1]` from `starts[1]`, and so on."""
    return tf.ragged.range(starts, starts + counts).flat_values

"""How attention finds the tokens of one row among tokens that lie one after another, [tokens, hidden_size].

Only attention needs rectangles. It takes them out of the flat product and puts them back by one gather each, which
also does what transposes between tokens and heads would do.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.config import AlbertConfig
from serving.inference.attention import MASKED_SCORE, OneRow, Reach, Rows, attend_heads, differing, rotation, turn
from serving.inference.relative import Pairs

# What numbers of tokens are rounded up to: oneDNN compiles and keeps a kernel of every product for every size, in each
# thread, and at 400 sizes that is 280 MB. Multiples of 4, from 32 on of 8, from 128 on eight an
# octave.
_BY_OCTAVE = [step * count for step in 2 ** np.arange(4, 18) for count in range(8, 16)]
SIZES = np.array([*range(0, 32, 4), *range(32, 128, 8), *_BY_OCTAVE], np.int32)


class Tables(NamedTuple):
    """Where attention finds some rows, shorter ones first.

    Blocks are attention's rectangles: int32 (bool) [blocks + 1]; the last is empty: a batch of no rows has a first
    block.
    """

    lengths: tf.Tensor  # [rows]
    starts: tf.Tensor  # [rows], their first tokens
    num_blocks: tf.Tensor
    block_rows: tf.Tensor
    block_length: tf.Tensor
    block_is_masked: tf.Tensor
    block_first_cell: tf.Tensor
    # Where each (row, head, position) of a block lies among all tokens' heads, and the way back.
    query: tf.Tensor
    key: tf.Tensor
    value: tf.Tensor
    back: tf.Tensor
    bias: tf.Tensor
    # Where positions are rotary: of each token, and what turns each (row, position) of a block.
    positions: tf.Tensor | tuple = ()
    rotation: tf.Tensor | tuple = ()
    # Where they are relative: of each (row, position) of a block; () where there is one segment.
    segments: tf.Tensor | tuple = ()
    # Where the last token stands for a row: which of its tokens that is, [rows], and the first row of each block.
    summaries: tf.Tensor | tuple = ()
    block_first_row: tf.Tensor | tuple = ()


class TokenRows(Rows):
    """Attention over some rows.

    Args:
        tables: from `make_tables`.
        config: of the encoder.
    """

    def __init__(self, tables: Tables, config: AlbertConfig):
        self.tables, self.config, self.heads = tables, config, config.num_attention_heads

    def attend(self, query_key_value: tf.Tensor, reach: Reach) -> tf.Tensor:
        flat = tf.reshape(query_key_value, [-1, self.config.head_size])
        attend = functools.partial(self._attend_block, flat, reach)
        first = attend(0)
        contexts = tf.cond(self.tables.num_blocks <= 1, lambda: first, lambda: self._attend_others(attend, first))
        if not reach.only_summary:
            contexts = tf.gather(contexts, self.tables.back)
        return tf.reshape(contexts, [-1, self.config.hidden_size])

    def summary_tokens(self, hidden: tf.Tensor) -> tf.Tensor:
        starts = self.tables.starts
        return tf.gather(hidden, starts + self.tables.summaries if self.config.spec.last_token else starts)

    def _attend_others(self, attend: Callable, first: tf.Tensor) -> tf.Tensor:
        contexts = tf.TensorArray(
            first.dtype, self.tables.num_blocks, infer_shape=False, element_shape=[None, self.config.head_size]
        )
        contexts = tf.while_loop(
            lambda block, contexts: block < self.tables.num_blocks,
            lambda block, contexts: (block + 1, contexts.write(block, attend(block))),
            (1, contexts.write(0, first)),
        )[1]
        return contexts.concat()

    def _attend_block(self, flat: tf.Tensor, reach: Reach, block: tf.Tensor | int) -> tf.Tensor:
        tables, only_summary = self.tables, reach.only_summary
        rows, length = tables.block_rows[block], tables.block_length[block]
        is_masked, cell = tables.block_is_masked[block], tables.block_first_cell[block]
        shape = [rows, self.heads, length]
        count = rows * length

        def take(index):
            return tf.reshape(tf.slice(index, [cell * self.heads], [count * self.heads]), shape)

        query, key, value = map(take, (tables.query, tables.key, tables.value))
        places, score = None, None
        if only_summary and self.config.spec.last_token:
            places = tf.slice(tables.summaries, [tables.block_first_row[block]], [rows])
            query = tf.gather(query, places[:, tf.newaxis], axis=2, batch_dims=1)
        elif only_summary:
            query = query[:, :, :1]
        query, key, value = (tf.gather(flat, index) for index in (query, key, value))
        if self.config.position_type == "rotary":
            rotation = tf.slice(self.tables.rotation, [cell, 0], [count, -1])
            rotation = tf.reshape(rotation, [rows, 1, length, self.config.head_size // 2])
            query, key = turn(query, rotation[:, :, :1] if only_summary else rotation), turn(key, rotation)

        if reach.relative is not None:
            differs = None if isinstance(tables.segments, tuple) else self._differs(cell, rows, length, places)
            score = functools.partial(
                reach.relative, pairs=Pairs(differs, places), step=reach.step, multiply=reach.multiply
            )

        def bias():
            return tf.reshape(tf.slice(tables.bias, [cell], [count]), [rows, 1, 1, length])

        contexts = attend_heads(query, key, value, bias, is_masked, self.config, reach, score)
        return tf.reshape(contexts, [-1, self.config.head_size])

    def _differs(self, cell: tf.Tensor, rows: tf.Tensor, length: tf.Tensor, places: tf.Tensor | None) -> tf.Tensor:
        of_keys = tf.reshape(tf.slice(self.tables.segments, [cell], [rows * length]), [rows, length])
        if places is None:
            return differing(of_keys, of_keys)
        return differing(tf.gather(of_keys, places[:, tf.newaxis], axis=1, batch_dims=1), of_keys)


def make_tables(
    lengths: tf.Tensor,
    config: AlbertConfig,
    mask: tf.Tensor | None = None,
    positions: tf.Tensor | tuple | None = None,
    segments: tf.Tensor | None = None,
) -> Tables:
    """Makes the tables of some rows.

    Args:
        lengths: int32 [rows], ascending: how many tokens of each row lie there.
        config: of the encoder.
        mask: bool [rows, length] where some of those tokens are padding to be masked; all lengths are equal then.
            None: attention pads each row to the next of SIZES, whatever rows are beside it.
        positions: int32 [tokens], places in their rows; None: 0, 1, ... in each. Of no effect unless they are rotary.
        segments: int32 [tokens], where positions are relative; None: there is one.
    """
    block_lengths, starts = lengths if mask is not None else round_up(lengths), tf.cumsum(lengths, exclusive=True)
    longest, _, counts = tf.unique_with_counts(block_lengths)
    is_masked = tf.gather(lengths, tf.cumsum(counts, exclusive=True)) != longest
    if mask is None:
        bias = tf.where(ranges(-lengths, block_lengths) < 0, 0.0, MASKED_SCORE)
    else:
        is_masked |= ~tf.reduce_all(mask)
        bias = tf.reshape(tf.where(mask, 0.0, MASKED_SCORE), [-1])
    turns: tf.Tensor | tuple = ()
    of_cells: tf.Tensor | tuple = ()

    def by_cell(of_tokens):
        return tf.gather(of_tokens, ranges(starts, block_lengths) - _beyond(lengths, block_lengths))

    if config.position_type == "rotary":
        positions = ranges(tf.zeros_like(lengths), lengths) if positions is None else positions
        turns = tf.complex(*rotation(by_cell(positions), config))
    elif segments is not None:
        of_cells = by_cell(segments)
    query, back = _indices(lengths, starts, block_lengths, config.num_attention_heads)
    keys = query if mask is None else _real(query, mask, config.num_attention_heads)
    if mask is None:
        back = tf.pad(back, [[0, missing(tf.reduce_sum(lengths))], [0, 0]])
    return Tables(
        lengths=lengths,
        starts=starts,
        num_blocks=tf.size(counts),
        block_rows=tf.pad(counts, [[0, 1]]),
        block_length=tf.pad(longest, [[0, 1]]),
        block_is_masked=tf.pad(is_masked, [[0, 1]]),
        block_first_cell=tf.pad(tf.cumsum(counts * longest), [[1, 0]]),
        query=query,
        key=keys + config.num_attention_heads,
        value=keys + 2 * config.num_attention_heads,
        back=back,
        bias=bias,
        positions=positions if config.position_type == "rotary" else (),
        rotation=turns,
        segments=of_cells,
        summaries=_summaries(lengths, mask) if config.spec.last_token else (),
        block_first_row=tf.pad(tf.cumsum(counts), [[1, 0]]) if config.spec.last_token else (),
    )


def _summaries(lengths: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """The last tokens of rows that are no padding."""
    if mask is None:
        return lengths - 1
    return tf.reduce_max(tf.where(mask, tf.range(tf.shape(mask)[1]), 0), axis=1)


def _indices(lengths, starts, block_lengths, num_heads: int) -> tuple[tf.Tensor, tf.Tensor]:
    heads, per_token = tf.range(num_heads), 3 * num_heads
    firsts = tf.reshape(starts[:, tf.newaxis] * per_token + heads, [-1])
    counts = tf.reshape(tf.tile(block_lengths[:, tf.newaxis], [1, num_heads]), [-1])
    index = tf.ragged.range(firsts, firsts + counts * per_token, per_token).flat_values
    beyond = _beyond(tf.reshape(tf.tile(lengths[:, tf.newaxis], [1, num_heads]), [-1]), counts)
    query = index - beyond * per_token
    first = tf.cumsum(block_lengths, exclusive=True) * num_heads
    first = tf.reshape(first + heads[:, tf.newaxis] * block_lengths, [-1])
    back = tf.transpose(tf.reshape(ranges(first, tf.tile(lengths, [num_heads])), [num_heads, -1]))
    return query, back


def _real(index: tf.Tensor, mask: tf.Tensor, num_heads: int) -> tf.Tensor:
    """The indices of a batch whose padding is computed, with those of a row's first real token in place of padding's.

    As in `_beyond`; what padding holds depends on how far the row is padded.
    """
    places = tf.range(tf.shape(mask)[1])
    first = tf.argmax(tf.cast(mask, tf.int32), axis=1, output_type=tf.int32)[:, tf.newaxis]
    shift = tf.where(mask, 0, first - places) * 3 * num_heads
    return index + tf.reshape(tf.tile(shift[:, tf.newaxis], [1, num_heads, 1]), [-1])


def _beyond(lengths: tf.Tensor, block_lengths: tf.Tensor) -> tf.Tensor:
    """By how many places each cell of a block's rows is behind its row's last token; 0 up to that.

    A block's padding reads that token again. Keys that are masked must be the row's own: what is multiplied by 0 may be
    NaN or infinite.
    """
    return tf.maximum(ranges(1 - lengths, block_lengths), 0)


def round_up(counts: tf.Tensor) -> tf.Tensor:
    """Rounds an int32 vector up to the next of SIZES; what is above all of them stays."""
    return tf.maximum(tf.gather(SIZES, tf.minimum(tf.searchsorted(SIZES, counts), len(SIZES) - 1)), counts)


def longest_block(length: int) -> int:
    """Says what attention makes of the longest row."""
    return max(length, int(SIZES[min(np.searchsorted(SIZES, length), len(SIZES) - 1)]))


def missing(count: tf.Tensor) -> tf.Tensor:
    """Says what `round_up` adds to one number."""
    return round_up(count[tf.newaxis])[0] - count


def ranges(starts: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Counts: starts[0], starts[0] + 1, ... (counts[0] of them), starts[1], ..., in one vector."""
    return tf.ragged.range(starts, starts + counts).flat_values


class FlatBatch:
    """Where the computed tokens of a batch come from.

    Args:
        mask: bool [batch, length], the real tokens. A row without any counts its first as real. Where positions are
            relative and padding is skipped, a row's tokens lie one behind the other, anywhere in it.
        config: of the encoder.
        skip_padding: whether padding is left out of all products, or is computed and masked.
        one_row: whether it has but one row, which needs no tables; then its padding is left out.
        segments: int32 [batch, length], where positions are relative; None: there is one.

    Attributes:
        mask: as given, with a token in each row.
        rows: the TokenRows of the tokens, shorter ones first, or the OneRow.
        order: int32 [batch], the batch's number of each of the rows.
        cells: int32 [tokens], where each token is in the flat batch.
        computed: the same, and, where padding is left out, once more cell 0 for all tokens that the products' sizes
            are rounded up by.
    """

    def __init__(
        self,
        mask: tf.Tensor,
        config: AlbertConfig,
        skip_padding: bool,
        one_row: bool = False,
        segments: tf.Tensor | None = None,
    ):
        self.config = config
        self.size, self.length = tf.unstack(tf.shape(mask))
        self.mask = mask = mask | first_tokens(mask, config)
        self._segments = None if segments is None else tf.reshape(segments, [-1])
        self.rows: Any
        if one_row:
            self.order, self.cells = tf.range(self.size), tf.cast(tf.where(mask[0])[:, 0], tf.int32)
            self.computed = tf.pad(self.cells, [[0, missing(tf.size(self.cells))]])
            self.rows = OneRow(tf.size(self.cells), self.computed, config, self._of_cells(self.computed))
            return
        if not skip_padding:
            self.order, self.cells = tf.range(self.size), tf.range(self.size * self.length)
            self.computed = self.cells
            tables = make_tables(tf.fill([self.size], self.length), config, mask, self._positions(), self._segments)
            self.rows = TokenRows(tables, config)
            return
        lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
        self.order = tf.argsort(lengths, stable=True)
        ordered = tf.gather(lengths, self.order)
        real = tf.cast(tf.where(tf.reshape(mask, [-1]))[:, 0], tf.int32)
        self.cells = tf.gather(real, ranges(tf.gather(tf.cumsum(lengths, exclusive=True), self.order), ordered))
        self.computed = tf.pad(self.cells, [[0, missing(tf.size(self.cells))]])
        tables = make_tables(ordered, config, None, self._positions(), self._of_cells(self.cells))
        self.rows = TokenRows(tables, config)

    def _of_cells(self, cells: tf.Tensor) -> tf.Tensor | None:
        return None if self._segments is None else tf.gather(self._segments, cells)

    def _positions(self) -> tf.Tensor:
        return self.cells % self.length

    def restore(self, of_rows: tf.Tensor) -> tf.Tensor:
        """Puts [batch, hidden_size] from the order of `rows` into the batch's, as float32."""
        return tf.cast(tf.gather(of_rows, tf.math.invert_permutation(self.order)), tf.float32)

    def rectangle(self, values: tf.Tensor) -> tf.Tensor:
        """Puts [computed tokens, units] into the batch's places, float32, zeros where nothing was computed."""
        units, values = values.shape[1], tf.cast(values[: tf.size(self.cells)], tf.float32)
        flat = tf.scatter_nd(self.cells[:, tf.newaxis], values, [self.size * self.length, units])
        return tf.reshape(flat, [self.size, self.length, units])


def first_tokens(mask: tf.Tensor, config: AlbertConfig) -> tf.Tensor:
    """Says which tokens count as real, whatever the mask says: bool, broadcast to [batch, length].

    That is each row's first; where padding may be in front of a row, only if it has no other.
    """
    is_first = tf.range(tf.shape(mask)[1]) == 0
    return is_first & ~tf.reduce_any(mask, axis=1, keepdims=True) if config.spec.last_token else is_first

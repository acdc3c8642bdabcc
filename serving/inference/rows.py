"""Rows of an export: which tokens are computed, and how they attend to each other."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.config import AlbertConfig
from albert_tf.layers.block import PART, Attention, Rows, Step, TokenPairs, attend_to_all, product_score

# Added to the scores of keys that are not attended to. The -10,000 of training lets through what scores more than that.
MASKED_SCORE = -1e30
# Numbers of tokens are rounded up to these sizes: oneDNN compiles and keeps a kernel of every product for every size in
# each thread, which takes 280 MB for 400 sizes. Multiples of 4; from 32 on, of 8; from 128 on, eight per doubling.
_BY_OCTAVE = [step * count for step in 2 ** np.arange(4, 18) for count in range(8, 16)]
SIZES = np.array([*range(0, 32, 4), *range(32, 128, 8), *_BY_OCTAVE], np.int32)


class Tables(NamedTuple):
    """The index tables of rows, sorted by ascending length.

    A block is all rows that attention pads to one length. Fields block_* are [blocks].
    """

    lengths: Tensor  # [rows]
    starts: Tensor  # [rows], their first tokens
    block_rows: Tensor
    block_length: Tensor
    block_is_masked: Tensor
    block_first_cell: Tensor
    # Where each query, (row, head, position) of a block, lies among all tokens' heads, and the way back.
    query: Tensor
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
    query, back = _indices(lengths, starts, block_lengths, config.num_attention_heads)
    return Tables(
        lengths=lengths,
        starts=starts,
        block_rows=counts,
        block_length=longest,
        block_is_masked=tf.gather(lengths, tf.cumsum(counts, exclusive=True)) != longest,
        block_first_cell=tf.cumsum(counts * longest, exclusive=True),
        query=query,
        back=tf.pad(back, [[0, missing(tf.reduce_sum(lengths))], [0, 0]]),
        bias=tf.where(ranges(-lengths, block_lengths) < 0, 0.0, MASKED_SCORE),
        block_first_row=tf.cumsum(counts, exclusive=True) if config.spec.last_token else (),
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


class FlatBatch:
    """Selects which tokens of a batch to compute, from a mask bool [batch, length].

    If the last token represents a row, the row's real tokens must be contiguous.

    Attributes:
        order: int32 [batch], row numbers by ascending length.
        lengths: int32 [batch], computed tokens of each row, in `order`.
        cells: int32 [tokens], the tokens' indices in the flattened batch.
        computed: `cells`, followed by zeros up to a size in SIZES.
    """

    order: Tensor
    lengths: Tensor

    def __init__(self, mask: Tensor, config: AlbertConfig, one_row: bool = False):
        self.size, self.length = tf.unstack(tf.shape(mask))
        self.mask = mask = mask | _first_tokens(mask, config.spec.last_token)
        if one_row:
            self.order, self.cells = tf.range(self.size), tf.cast(tf.where(mask[0])[:, 0], tf.int32)
        else:
            lengths = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1)
            self.order = tf.argsort(lengths, stable=True)
            self.lengths = tf.gather(lengths, self.order)
            real = tf.cast(tf.where(tf.reshape(mask, [-1]))[:, 0], tf.int32)
            starts = tf.gather(tf.cumsum(lengths, exclusive=True), self.order)
            self.cells = tf.gather(real, ranges(starts, self.lengths))
        self.computed = tf.pad(self.cells, [[0, missing(tf.size(self.cells))]])

    def restore(self, of_rows: Tensor) -> Tensor:
        return tf.gather(of_rows, tf.math.invert_permutation(self.order))

    def rectangle(self, values: Tensor) -> Tensor:
        """Converts [computed tokens, ...] to float32 [batch, length, ...], with zeros elsewhere."""
        width = values.shape[1:]
        values = tf.cast(values[: tf.size(self.cells)], tf.float32)
        flat = tf.scatter_nd(self.cells[:, tf.newaxis], values, [self.size * self.length, *width])
        return tf.reshape(flat, [self.size, self.length, *width])


# Marks tokens to compute even if masked: each row's first; with `last_token`, that of empty rows only.
def _first_tokens(mask: Tensor, last_token: bool) -> Tensor:
    is_first = tf.range(tf.shape(mask)[1]) == 0
    return is_first & ~tf.reduce_any(mask, axis=1, keepdims=True) if last_token else is_first


class BatchRows(Rows):
    """The rows of a FlatBatch; `hoisted` holds values that extensions compute once for all steps."""

    def __init__(self, batch: FlatBatch, config: AlbertConfig, attention: Attention):
        self.batch, self.config, self.attention = batch, config, attention
        self.last_token = config.spec.last_token
        self.features, self.hoisted = dict[str, Tensor](), dict[Any, Tensor]()

    def add_feature(self, name: str, values: Tensor) -> None:
        self.features[name] = values

    def of_batch(self, values: Tensor) -> Tensor:
        """Converts values [batch, length] to the layout that `add_feature` takes."""
        raise NotImplementedError

    def rectangle(self, values: Tensor) -> Tensor:
        return self.batch.rectangle(values)

    def restore(self, of_rows: Tensor) -> Tensor:
        return self.batch.restore(of_rows)


def attend_from_first(rows: Any, bias: Tensor, query: Tensor, key: Tensor, value: Tensor, step: Step) -> Tensor:
    """Attends from all tokens; in a step that needs only summaries, from each row's first token."""
    place = slice(0, 1) if step.only_summary else slice(None)
    features = {name: (one[:, place], one) for name, one in rows.features.items()}
    pairs = TokenPairs(bias, features, 0 if step.only_summary else None)
    return rows.attention(query[:, :, place], key, value, pairs, step)


def attend_by_parts(
    attention: Attention, query: Tensor, key: Tensor, value: Tensor, pairs: TokenPairs, step: Step
) -> Tensor:
    """Computes `attend_to_all` for PART queries of a row at a time."""
    count = -(-tf.shape(query)[2] // PART)

    def attend_part(part: Tensor, contexts: tf.TensorArray) -> tuple[Tensor, tf.TensorArray]:
        place, own = slice(part * PART, (part + 1) * PART), copy.copy(pairs)
        own.features = {name: (of_queries[:, place], of_keys) for name, (of_queries, of_keys) in own.features.items()}
        context = attend_to_all(attention, query[:, :, place], key, value, own, step)
        return part + 1, contexts.write(part, tf.transpose(context, [2, 0, 1, 3]))

    def by_parts() -> Tensor:
        shape = [None, None, None, query.shape[3]]
        contexts = tf.TensorArray(query.dtype, count, infer_shape=False, element_shape=shape)
        contexts = tf.while_loop(lambda part, _: part < count, attend_part, (0, contexts), parallel_iterations=1)[1]
        return tf.transpose(contexts.concat(), [1, 2, 0, 3])

    return tf.cond(count <= 1, lambda: attend_to_all(attention, query, key, value, pairs, step), by_parts)


def for_long_rows(attention: Attention, longest: int) -> Attention:
    """Returns the same attention, by parts if rows may be long and no extension changed it."""
    is_usual = (attention.attend, attention.score) == (attend_to_all, product_score)
    return dataclasses.replace(attention, attend=attend_by_parts) if is_usual and longest > PART else attention


class OneRow(BatchRows):
    """A batch of one row, computed without index tables; values equal those of FlatRows."""

    def __init__(self, batch: FlatBatch, config: AlbertConfig, attention: Attention):
        super().__init__(batch, config, attention)
        count = tf.size(batch.cells)
        self.is_real = tf.range(tf.size(batch.computed)) < count
        self.bias = tf.where(self.is_real, 0.0, MASKED_SCORE)[tf.newaxis, tf.newaxis, tf.newaxis]
        self.summary: Any = count - 1 if self.last_token else 0

    def token_positions(self) -> Tensor:
        return self.batch.computed[tf.newaxis]

    def of_batch(self, values: Tensor) -> Tensor:
        return tf.gather(tf.reshape(values, [-1]), self.batch.computed)[tf.newaxis]

    def attend(self, projected: Tensor, step: Step) -> Tensor:
        by_head = tf.reshape(projected, [1, -1, 3, self.config.num_attention_heads, self.config.head_size])
        query, key, value = tf.unstack(tf.transpose(by_head, [2, 0, 3, 1, 4]))
        features, summary = {name: (one, one) for name, one in self.features.items()}, None
        if step.only_summary:
            place = slice(self.summary, self.summary + 1)
            query, summary = query[:, :, place], tf.reshape(self.summary, [1, 1]) if self.last_token else 0
            features = {name: (one[:, place], one) for name, one in self.features.items()}
        pairs = RowPairs(lambda: self.bias, features, summary, self.hoisted)
        contexts = self.attention(query, key, value, pairs, step)
        return tf.reshape(tf.transpose(contexts, [0, 2, 1, 3]), [-1, self.config.hidden_size])

    def summary_tokens(self, hidden: Tensor) -> Tensor:
        return hidden[self.summary : self.summary + 1]

    def sum(self, values: Tensor) -> Tensor:
        return tf.reduce_sum(tf.where(self.is_real, values, 0), axis=-1, keepdims=True)

    def spread(self, values: Tensor) -> Tensor:
        return tf.repeat(values, tf.size(self.is_real))


class FlatRows(BatchRows):
    """Concatenated rows, sorted by ascending length; by default all rows of the batch.

    `lengths` is [rows]; `cells` are the tokens' indices in the flattened batch.
    """

    def __init__(
        self,
        batch: FlatBatch,
        config: AlbertConfig,
        attention: Attention,
        lengths: Tensor | None = None,
        cells: Tensor | None = None,
    ):
        super().__init__(batch, config, attention)
        lengths = batch.lengths if lengths is None else lengths
        self.cells = batch.cells if cells is None else cells
        self._block_lengths = round_up(lengths)
        self.tables = make_tables(lengths, self._block_lengths, config)
        # See `find_rows`; what extensions have found once for all steps.
        self.row_of_tokens: Any = None

    def again(self, tables: Tables, features: dict[str, Tensor]) -> "FlatRows":
        rows = object.__new__(FlatRows)
        BatchRows.__init__(rows, self.batch, self.config, self.attention)
        rows.tables, rows.features, rows.hoisted = tables, features, self.hoisted
        return rows

    def token_positions(self) -> Tensor:
        return self._by_cell(self.cells % self.batch.length)

    def of_batch(self, values: Tensor) -> Tensor:
        return self._by_cell(tf.gather(tf.reshape(values, [-1]), self.cells))

    def _by_cell(self, of_tokens: Tensor) -> Tensor:
        starts, lengths = self.tables.starts, self.tables.lengths
        index = ranges(starts, self._block_lengths) - beyond(lengths, self._block_lengths)
        return tf.gather(of_tokens, index)

    def attend(self, projected: Tensor, step: Step) -> Tensor:
        flat = tf.reshape(projected, [-1, self.config.head_size])
        count, size = tf.size(self.tables.block_rows), self.config.head_size
        contexts = tf.TensorArray(flat.dtype, count + 1, infer_shape=False, element_shape=[None, size])
        contexts = tf.while_loop(
            lambda block, _: block < count,
            lambda block, contexts: (block + 1, contexts.write(block, self._attend_block(flat, step, block))),
            # A batch without rows has no block, and an eager TensorArray must hold something to be joined.
            (0, contexts.write(count, tf.zeros([0, size], flat.dtype))),
        )[1].concat()
        if not step.only_summary:
            contexts = tf.gather(contexts, self.tables.back)
        return tf.reshape(contexts, [-1, self.config.hidden_size])

    def summary_tokens(self, hidden: Tensor) -> Tensor:
        starts = self.tables.starts
        return tf.gather(hidden, starts + self.tables.lengths - 1 if self.last_token else starts)

    def _attend_block(self, flat: Tensor, step: Step, block: Tensor) -> Tensor:
        tables, heads = self.tables, self.config.num_attention_heads
        rows, length = tables.block_rows[block], tables.block_length[block]
        is_masked, cell = tables.block_is_masked[block], tables.block_first_cell[block]
        shape = [rows, heads, length]
        count = rows * length

        def by_row(values: Tensor) -> Tensor:
            width = values.shape[1:].as_list()
            return tf.reshape(tf.slice(values, [cell, *[0] * len(width)], [count, *width]), [rows, length, *width])

        query = tf.reshape(tf.slice(tables.query, [cell * heads], [count * heads]), shape)
        key, value = query + heads, query + 2 * heads
        features = {name: (by_row(values),) * 2 for name, values in self.features.items()}
        summary: Any = None
        if step.only_summary and self.last_token:
            summary = tf.slice(tables.lengths, [tables.block_first_row[block]], [rows])[:, tf.newaxis] - 1
            query = tf.gather(query, summary, axis=2, batch_dims=1)
            features = {
                name: (tf.gather(one, summary, axis=1, batch_dims=1), one) for name, (_, one) in features.items()
            }
        elif step.only_summary:
            query, summary = query[:, :, :1], 0
            features = {name: (one[:, :1], one) for name, (_, one) in features.items()}
        query, key, value = (tf.gather(flat, index) for index in (query, key, value))

        def bias() -> Tensor:
            return tf.reshape(tf.slice(tables.bias, [cell], [count]), [rows, 1, 1, length])

        pairs = RowPairs(bias, features, summary, self.hoisted, is_masked)
        return tf.reshape(self.attention(query, key, value, pairs, step), [-1, self.config.head_size])

    def find_rows(self) -> tuple[Tensor, Tensor]:
        """Returns each computed token's row, int32 [tokens], and the same with -1 for tokens to leave out of sums."""
        lengths = self.tables.lengths
        row = tf.repeat(tf.range(tf.size(lengths)), lengths)
        more = [[0, tf.size(self.batch.computed) - tf.size(row)]]
        # Tokens with a negative number are left out of sums.
        return tf.pad(row, more), tf.pad(row, more, constant_values=-1)

    def sum(self, values: Tensor) -> Tensor:
        axes = list(range(values.shape.rank))
        by_token = tf.transpose(values, axes[-1:] + axes[:-1])
        row = (self.row_of_tokens or self.find_rows())[1]
        found = tf.math.unsorted_segment_sum(by_token, row, tf.size(self.tables.lengths))
        return tf.transpose(found, axes[1:] + axes[:1])

    def spread(self, values: Tensor) -> Tensor:
        return tf.gather(values, (self.row_of_tokens or self.find_rows())[0])


class RowPairs(TokenPairs):
    """The token pairs of an export's rows.

    `bias` returns float32 [rows, 1, 1, keys] to add to scores; `is_masked`: whether any is not 0 (None: unknown).
    """

    def __init__(
        self, bias: Callable, features: dict, summary: Tensor = None, hoisted: dict | None = None, is_masked: Any = None
    ):
        self.features, self.summary, self.hoisted = features, summary, hoisted or {}
        self._make_bias, self.is_masked = bias, is_masked

    @property
    def bias(self) -> Tensor:  # type: ignore[override]
        return self._make_bias()

    def masked(self, scores: Tensor) -> Tensor:
        def add() -> Tensor:
            return scores + tf.cast(self.bias, scores.dtype)

        return add() if self.is_masked is None else tf.cond(self.is_masked, add, lambda: scores)

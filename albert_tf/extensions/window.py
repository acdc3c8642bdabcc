"""Attention for long rows: either local attention, or full attention computed for some queries at a time.

Local attention is to nearby tokens and, as in Longformer (arXiv:2004.05150), the first one; every few steps may attend
to all tokens (arXiv:2412.13663).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from albert_tf.base import Tensor
from albert_tf.base.layers import plain
from albert_tf.config.extension import Extension, RowCost
from albert_tf.config.registry import Weights
from albert_tf.layers.block import MASKED_SCORE, PART, Step, attend_to_all
from albert_tf.layers.depth import plan
from tfrecords.base.errors import UserError


@dataclasses.dataclass(frozen=True)
class Window(Extension):
    """Restricts attention to nearby tokens and, by default, the first one; the first token attends to all.

    Attributes:
        attention_window: number of positions on each side; 0 for full attention. Rows of at most this many tokens plus
            one are unaffected.
        global_attention_every: attention is full at one step in this many, beginning with the first; 0 for never.
        window_first_token: whether all tokens attend to the first one, and it to all.
    """

    name, begins_plain, needed = "window", True, ("global_attention_every", "window_first_token")
    packs = False
    attention_window: int = 0
    global_attention_every: int = 0
    window_first_token: bool = True

    def period(self) -> int:
        return self.global_attention_every or 1

    def is_local(self, step: Step) -> bool:
        return not (self.global_attention_every and step.phase == 0)

    def seen_by_summary(self, step: Step) -> slice:
        """Returns the keys that a row's first token attends to in a step that computes it alone."""
        is_cut = step.only_summary and self.is_local(step) and not self.window_first_token
        return slice(self.attention_window + 1) if is_cut else slice(None)

    def check_features(self, features: dict[str, Any]) -> None:
        if "sequence_ids" in features:
            raise plain(UserError("attention_window and packed rows exclude each other; leave out sequence_ids"))

    def check_outputs(self, hidden_states: bool, attentions: bool) -> None:
        if attentions:
            raise plain(UserError("with an attention_window there are no attentions; leave out output_attentions"))

    def row_cost(self, config: Any, targets: int, cost: RowCost) -> RowCost:
        local = [self.is_local(step) for step in plan(config)]
        counts = [pairs(cost.length, self.attention_window * is_near) for is_near in local]
        # The backward pass recomputes parts of a long row.
        stored = counts if cost.length <= PART else [count for count, is_near in zip(counts, local) if is_near]
        return cost._replace(pairs=sum(counts), stored_pairs=sum(stored))

    def attention(self, attention: Any, weights: Weights, make_blocks: Any = None) -> Any:
        window = self.attention_window

        def attend(attention: Any, query: Tensor, key: Tensor, value: Tensor, pairs: Any, step: Step) -> Tensor:
            def score(queries: Tensor, keys: Tensor) -> Tensor:
                return attention.score(attention, queries, keys, pairs, step)

            def weigh(scores: Tensor, part: Tensor) -> Tensor:
                return attention.softmax(scores, step, part)

            length = ops.shape(query)[2]
            is_near = self.is_local(step) and not step.only_summary
            if is_near and not (isinstance(length, int) and length <= window + 1):
                first = self.window_first_token
                blocks = (make_blocks or Blocks)(query, window)
                return attend_nearby(query, key, value, pairs.bias, score, weigh, blocks, MASKED_SCORE, first)
            seen = self.seen_by_summary(step)
            if seen.stop is not None:
                key, value = key[:, :, seen], value[:, :, seen]
                pairs = dataclasses.replace(pairs, bias=None if pairs.bias is None else pairs.bias[..., seen])
            if isinstance(length, int) and length > PART:
                return attend_by_parts(query, key, value, pairs.bias, score, weigh)
            return attend_to_all(attention, query, key, value, pairs, step, 0)

        return dataclasses.replace(attention, attend=attend)


def pairs(length: int, window: int) -> int:
    """Returns how many scores of query-key pairs are computed for a row; `window` 0 means full attention.

    >>> pairs(4096, 128) / pairs(4096, 0)
    0.094...
    """
    if not window or length <= window + 1:
        return length * length
    return -(-length // window) * window * (3 * window + 1) + length


class Blocks:
    """Cuts rows [batch, heads, length, size] into blocks; tokens attend to their own block and its two neighbours.

    `is_near`, bool [queries, keys], is whether a block's query attends to such a key.
    """

    def __init__(self, rows: Tensor, window: int):
        self._window, self._length = window, ops.shape(rows)[2]
        self._count = (self._length + window - 1) // window
        self.is_near = ops.abs(ops.arange(3 * window)[None] - window - ops.arange(window)[:, None]) <= window

    def own(self, rows: Tensor, filler: float = 0.0) -> Tensor:
        """Returns [batch, heads, blocks, queries, size]; `filler` is behind the row's end."""
        batch, heads, length, size = ops.shape(rows)
        missing = ops.full((batch, heads, self._count * self._window - length, size), filler, rows.dtype)
        filled = ops.concatenate([rows, missing], axis=2)
        return ops.reshape(filled, (batch, heads, self._count, self._window, size))

    def near(self, rows: Tensor, filler: float = 0.0) -> Tensor:
        """Returns [batch, heads, blocks, keys, size]; `filler` is before the row and behind it."""
        own = self.own(rows, filler)
        edge = ops.full_like(own[:, :, :1], filler)
        before = ops.concatenate([edge, own[:, :, :-1]], axis=2)
        after = ops.concatenate([own[:, :, 1:], edge], axis=2)
        return ops.concatenate([before, own, after], axis=3)

    def join(self, contexts: Tensor) -> Tensor:
        """Reverses `own`."""
        batch, heads, _, _, size = ops.shape(contexts)
        return ops.reshape(contexts, (batch, heads, self._count * self._window, size))[:, :, : self._length]


def attend_nearby(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    score: Callable,
    weigh: Callable,
    blocks: Blocks,
    masked: float,
    with_first: bool = True,
) -> Tensor:
    """Computes attention to near tokens of the same and the neighbouring blocks.

    If `with_first`, all also attend to the first token, which itself attends to all.

    `query`, `key`, `value` and the result are [batch, heads, length, head_size]. `bias`, [batch, 1, 1, length], is
    added to all scores, and `masked` to those of pairs that must not attend. `score` returns scores [..., queries,
    keys]; `weigh(scores, number of the call)` returns their probabilities.
    """
    batch, _, length, _ = ops.shape(query)
    if bias is None:
        bias = ops.zeros((batch, 1, 1, length), query.dtype)
    # All attend to the first token, once.
    of_keys = ops.where(ops.arange(length) == 0, ops.cast(masked, bias.dtype), bias) if with_first else bias
    of_keys = blocks.near(ops.transpose(of_keys, (0, 1, 3, 2)), masked)[..., 0]
    of_pairs = ops.cast(ops.where(blocks.is_near, 0.0, masked), query.dtype)
    queries, values = blocks.own(query), blocks.near(value)
    scores = score(queries, blocks.near(key)) + (of_pairs + ops.expand_dims(of_keys, 3))
    if not with_first:
        return blocks.join(ops.matmul(weigh(scores, 0), values))
    first = score(queries, ops.expand_dims(key[:, :, :1], 2)) + ops.expand_dims(bias, 3)[..., :1]
    probabilities = weigh(ops.concatenate([scores, first], axis=-1), 0)
    contexts = ops.matmul(probabilities[..., :-1], values)
    contexts = contexts + probabilities[..., -1:] * ops.expand_dims(value[:, :, :1], 2)
    of_all = weigh(score(query[:, :, :1], key) + bias, 1)
    return ops.concatenate([ops.matmul(of_all, value), blocks.join(contexts)[:, :, 1:]], axis=2)


def attend_by_parts(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, score: Callable, weigh: Callable
) -> Tensor:
    """Computes attention to all tokens, PART queries at a time; the backward pass recomputes each part."""

    def attend(query: Tensor, key: Tensor, value: Tensor, part: Tensor) -> Tensor:
        scores = score(query, key)
        return ops.matmul(weigh(scores if bias is None else scores + bias, part), value)

    attend, length = keras.remat(attend), ops.shape(query)[2]
    parts = [attend(query[:, :, first : first + PART], key, value, first // PART) for first in range(0, length, PART)]
    return ops.concatenate(parts, axis=2)

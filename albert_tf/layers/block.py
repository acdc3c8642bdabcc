"""The function `block`, which applies a transformer block once, in training and in exports.

A block has two halves, "attention" and "feed_forward". `Kernels` are Keras layers in training and constants in an
export. `Rows` are padded in training only.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from keras import ops

from albert_tf.base import Tensor

# Added to the score of a pair that must not attend (modeling.py:824-830); a float16 holds it.
MASKED_SCORE = -10000.0
# Number of queries that attend to a whole long row at once.
PART = 512


class Step(NamedTuple):
    """A depth step, the application of a block: its number and the block's two halves, which other steps may share."""

    attention: int  # index of its attention half
    feed_forward: int  # index of its feed-forward half
    phase: int = 0  # its place in the period of the extensions; see `Extension.period`
    number: Tensor = 0  # index in the plan: an int, or a scalar tensor within a loop; 0 in a plan itself
    only_summary: bool = False  # whether it computes only the tokens that represent rows, as in some exports


class Kernels(Protocol):
    """Multiplies by a block's weights.

    Products may have any type that `add_to_residual` and Rows accept.
    """

    scale: tuple[float, float]  # the factor already applied to queries, and the factor still to be applied to scores
    is_pre: bool  # whether norms come before a half
    is_gated: bool  # whether the feed-forward network has a gate

    def half(self, kind: str, step: Step) -> Any:
        """Returns the "attention" or "feed_forward" half of a step's block."""

    def half_input(self, half: str, step: Step, hidden: Tensor) -> Tensor:
        return self.half(half, step).layer_norm(hidden) if self.is_pre else hidden

    def query_key_value(self, step: Step, inputs: Tensor, attended: Tensor) -> Any:
        """Returns the queries of `inputs`, and the keys and values of `attended`."""

    def dense(self, name: str, step: Step, inputs: Tensor) -> Any:
        """Returns a feed-forward layer's output: "intermediate", with activation function, or "gate", without."""

    def add_to_residual(self, half: str, step: Step, inside: Any, residual: Tensor) -> Tensor:
        """Completes a half: output layer, dropout, residual sum and, with post-norm, normalization."""

    def softmax(self, scores: Tensor, step: Step, part: Tensor = None) -> Tensor:
        """Returns attention probabilities, with dropout in training; `part` numbers the slice of a long row."""


class Rows(Protocol):
    """Defines which tokens form a row, and calls attention with tensors [rows, heads, tokens, head_size]."""

    attention: "Attention"

    def attend(self, projected: Any, step: Step) -> Tensor:
        """Returns attention's output: [tokens, hidden_size], or [rows, hidden_size] if the step has `only_summary`."""

    def attended(self, step: Step, inputs: Tensor) -> Tensor:
        return inputs

    def summary_tokens(self, hidden: Tensor) -> Tensor:
        """Selects the token that represents each row, such as [CLS]: [tokens, ...] to [rows, ...]."""

    def token_positions(self) -> Tensor:
        """Returns the tokens' positions, int32 [..., tokens]."""

    def columns(self) -> Tensor:
        return self.token_positions()

    def add_feature(self, name: str, values: Tensor) -> None:
        """Gives attention a tensor with a value for each token as query and as key, [..., tokens, ...]."""

    def sum(self, values: Tensor) -> Tensor:
        """Sums [..., tokens] over the tokens of each row, without padding: [..., rows]."""

    def spread(self, values: Tensor) -> Tensor:
        """Copies each row's value to its tokens: [rows] to [tokens]."""

    def rectangle(self, values: Tensor) -> Tensor:
        """Reshapes [tokens, ...] to the batch's layout, [batch, length, ...]."""

    def restore(self, of_rows: Tensor) -> Tensor:
        return of_rows


def block(kernels: Kernels, rows: Rows, step: Step, hidden: Tensor) -> Tensor:
    """Applies a step's block, attention and then feed-forward (modeling.py:934-1015), to [tokens, hidden_size].

    A step with `only_summary` returns [rows, hidden_size].
    """
    inputs = kernels.half_input("attention", step, hidden)
    projected = kernels.query_key_value(step, inputs, rows.attended(step, inputs))
    context = rows.attend(projected, step)
    residual = rows.summary_tokens(hidden) if step.only_summary else hidden
    hidden = kernels.add_to_residual("attention", step, context, residual)
    inputs = kernels.half_input("feed_forward", step, hidden)
    inside = kernels.dense("intermediate", step, inputs)
    if kernels.is_gated:
        inside = inside * kernels.dense("gate", step, inputs)
    return kernels.add_to_residual("feed_forward", step, inside, hidden)


@dataclasses.dataclass
class TokenPairs:
    """The masks and features of query-key pairs, for rows padded to one length."""

    bias: Tensor  # [rows or 1, 1, queries or 1, keys], added to the scores; None if all may attend to all
    features: dict[str, tuple[Tensor, Tensor]]  # [rows or 1, queries, ...] of the queries, the same of the keys
    summary: Tensor = None  # int32 [rows, 1], the queries' columns, where only summary tokens are queries

    def masked(self, scores: Tensor) -> Tensor:
        return scores if self.bias is None else scores + ops.cast(self.bias, scores.dtype)


def product_score(attention: "Attention", query: Tensor, key: Tensor, pairs: TokenPairs, step: Step) -> Tensor:
    """Returns the scaled products of queries and keys."""
    # The scale comes after the product: TensorFlow 2.21 on CPU returns empty tensors, without an error, from a
    # while_loop around matmul(query * scale, transposed key) + bias (grappler's remapper with oneDNN).
    scores = attention.multiply(query, key, transpose_b=True)
    return scores if attention.score_scale == 1 else scores * attention.score_scale


def attend_to_all(
    attention: "Attention",
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pairs: TokenPairs,
    step: Step,
    part: Tensor = None,
) -> Tensor:
    """Computes attention to all keys that the bias does not mask; `part` is for `softmax`."""
    if attention.turns > 1:
        whole = dataclasses.replace(attention, turns=1)
        turns = zip(*(ops.split(one, attention.turns, axis=1) for one in (query, key, value)))
        return ops.concatenate([attend_to_all(whole, q, k, v, pairs, step, part) for q, k, v in turns], axis=1)
    scores = attention.score(attention, query, key, pairs, step)
    return attention.multiply(attention.softmax(pairs.masked(scores), step, part), value)


def _multiply(first: Tensor, second: Tensor, transpose_b: bool = False) -> Tensor:
    return ops.matmul(first, ops.swapaxes(second, -1, -2) if transpose_b else second)


@dataclasses.dataclass(frozen=True)
class Attention:
    """The functions that compute attention; extensions replace some of them."""

    softmax: Callable  # of the kernels
    query_scale: float  # the factor that queries have already; anything added to them needs it, too
    score_scale: float  # the factor that scores still need
    rotate: Callable | None = None  # of queries or keys, and their part of the pairs' feature `rotation(step)`
    rotation: Callable[[Step], str] = lambda step: "rotation"
    score: Callable = product_score
    attend: Callable = attend_to_all
    multiply: Callable = _multiply  # as tf.matmul
    turns: int = 1  # the parts of the heads that attend to all keys one after the other, which takes less memory

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, pairs: TokenPairs, step: Step) -> Tensor:
        if self.rotate is not None:
            of_queries, of_keys = pairs.features[self.rotation(step)]
            query, key = self.rotate(query, of_queries), self.rotate(key, of_keys)
        return self.attend(self, query, key, value, pairs, step)

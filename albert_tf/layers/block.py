"""One depth step, written once for training and exports, and the two protocols that it is written over.

`Kernels` multiply: Keras layers in training, constants of float32, bfloat16 or int8 in an export. `Rows` know which
tokens make a row: a padded rectangle in training, rows without padding in an export. Rows call an `Attention`.
"""

import contextvars
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from keras import ops

from albert_tf.base import Tensor

# Added to the score of a pair that must not attend (modeling.py:824-830); a float16 holds it.
MASKED_SCORE = -10000.0


class Step(NamedTuple):
    """One depth step: the weights that it runs with, and its number.

    Attributes:
        attention: the index of its attention half in the encoder.
        feed_forward: the index of its feed-forward half.
        phase: its place in the period after which what extensions do at a step repeats; see `Extension.period`.
        number: of the plan's steps: an int, or a scalar tensor within a loop; 0 in a plan itself.
        only_summary: whether its result is of the tokens alone that represent rows. Only exports have such a step.
    """

    attention: int
    feed_forward: int
    phase: int = 0
    number: Tensor = 0
    only_summary: bool = False


class Kernels(Protocol):
    """Multiplies. Results of `dense` and `query_key_value` may have a form that only `close` and rows can read.

    Attributes:
        scale: what queries have been multiplied by, and what scores are still to be multiplied by.
        is_gated: whether the feed-forward network has a gate.
    """

    scale: tuple[float, float]
    is_gated: bool

    def half_input(self, half: str, step: Step, hidden: Tensor) -> Tensor:
        """Returns the input of a half: normalized with pre-norm, otherwise as it is."""

    def query_key_value(self, step: Step, inputs: Tensor, attended: Tensor) -> Any:
        """Returns the queries of `inputs`, and the keys and values of `attended`."""

    def dense(self, name: str, step: Step, inputs: Tensor) -> Any:
        """Returns the product "intermediate", after the activation function, or "gate"."""

    def add_to_residual(self, half: str, step: Step, inside: Any, residual: Tensor) -> Tensor:
        """Ends a half: output product, dropout, residual, and with post-norm the norm."""

    def softmax(self, scores: Tensor, step: Step, part: Tensor = None) -> Tensor:
        """Returns the probabilities of scores, some dropped in training. `part` counts the parts of a long row."""


def block(kernels: Kernels, rows: "Rows", step: Step, hidden: Tensor) -> Tensor:
    """Runs attention, then the feed-forward network (modeling.py:934-1015).

    It turns [tokens, hidden_size] into the same, or into [rows, hidden_size] at a step of summary tokens alone.
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


class Pairs:
    """What is known of the queries and keys of rows that lie in one rectangle.

    Args:
        bias: [rows or 1, 1, queries or 1, keys], added to the scores; None: all queries may attend to all keys.
        features: by name, [rows or 1, queries, ...] of the queries and [rows or 1, keys, ...] of the keys.
        summary: int32 [rows, 1], the columns of the queries, where these are summary tokens alone; else None.
    """

    def __init__(self, bias: Tensor, features: dict[str, tuple[Tensor, Tensor]], summary: Tensor = None):
        self.bias, self.features, self.summary = bias, features, summary

    def masked(self, scores: Tensor) -> Tensor:
        """Returns scores [rows, heads, queries, keys] with the bias added."""
        return scores if self.bias is None else scores + ops.cast(self.bias, scores.dtype)


class Rows(Protocol):
    """Knows which tokens make a row. Attention is called with rectangles [rows, heads, tokens, head_size]."""

    attention: "Attention"

    def attend(self, projected: Any, step: Step) -> Tensor:
        """Returns contexts [tokens, hidden_size], or [rows, hidden_size] of the summary tokens alone."""

    def attended(self, step: Step, inputs: Tensor) -> Tensor:
        """Returns what keys and values are made of: the inputs, or these with the memory before them."""
        return inputs

    def summary_tokens(self, hidden: Tensor) -> Tensor:
        """Returns the token that represents each row: [rows, ...] of [tokens, ...]."""

    def token_positions(self) -> Tensor:
        """Returns int32 [..., tokens], the positions of tokens in their rows, as `add_feature` takes values."""

    def columns(self) -> Tensor:
        """Returns int32 [..., tokens], the columns of tokens in the batch; positions unless the batch has its own."""
        return self.token_positions()

    def add_feature(self, name: str, values: Tensor) -> None:
        """Adds a feature of pairs: the values [..., tokens, ...] of queries and keys."""

    def sum(self, values: Tensor) -> Tensor:
        """Returns [..., rows], the sum of [..., tokens] over each row's tokens without padding."""

    def spread(self, values: Tensor) -> Tensor:
        """Returns for each token its row's value: [rows] to [tokens]."""

    def rectangle(self, values: Tensor) -> Tensor:
        """Returns [tokens, ...] as the batch has them, [batch, length, ...]."""

    def restore(self, of_rows: Tensor) -> Tensor:
        """Returns [rows, ...] in the batch's order."""


def product_score(attention: "Attention", query: Tensor, key: Tensor, pairs: Pairs, step: Step) -> Tensor:
    """Returns the products of queries and keys, scaled."""
    # The scale comes after the product: TensorFlow 2.21 on CPU returns empty tensors, without an error, from a
    # while_loop around matmul(query * scale, transposed key) + bias (grappler's remapper with oneDNN).
    scores = attention.multiply(query, key, transpose_b=True)
    return scores if attention.score_scale == 1 else scores * attention.score_scale


def attend_to_all(
    attention: "Attention", query: Tensor, key: Tensor, value: Tensor, pairs: Pairs, step: Step
) -> Tensor:
    """Returns the contexts of queries that attend to all keys of their row, as far as the bias lets them."""
    scores = attention.score(attention, query, key, pairs, step)
    return attention.multiply(attention.softmax(pairs.masked(scores), step), value)


# What attends where no extension says otherwise; see `albert_tf.layers.fused_attention`.
ATTEND = contextvars.ContextVar("attend", default=attend_to_all)


def _multiply(first: Tensor, second: Tensor, transpose_b: bool = False) -> Tensor:
    return ops.matmul(first, ops.swapaxes(second, -1, -2) if transpose_b else second)


@dataclasses.dataclass(frozen=True)
class Attention:
    """How heads attend, as functions that extensions replace.

    Attributes:
        softmax: of the kernels.
        query_scale: the factor that queries have already; whatever is added to them must get it, too.
        score_scale: the factor that scores still need.
        rotate: a function of queries or keys and the pairs' feature "rotation"; None: there is no rotation.
        score: see `product_score`.
        attend: see `attend_to_all`.
        multiply: multiplies matrices, as tf.matmul does.
    """

    softmax: Callable
    query_scale: float
    score_scale: float
    rotate: Callable | None = None
    score: Callable = product_score
    attend: Callable = attend_to_all
    multiply: Callable = _multiply

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, pairs: Pairs, step: Step) -> Tensor:
        """Returns contexts [rows, heads, queries, head_size], of queries, keys and values of the same form."""
        if self.rotate is not None:
            of_queries, of_keys = pairs.features["rotation"]
            query, key = self.rotate(query, of_queries), self.rotate(key, of_keys)
        return self.attend(self, query, key, value, pairs, step)

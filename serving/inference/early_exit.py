"""Batched early exit: after every step a head answers, rows that are decided leave, the rest go on.

Taking rows out means new tables for attention, which cost as much as a good part of a step. So a decided row
keeps its answer but stays in the batch, still computed, until such rows hold enough of the tokens.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from serving.inference.layers import array
from serving.inference.rows import FlatBatch, Tables, TokenRows, make_tables, missing, ranges
from tfrecords.base.errors import UserError

RULES = ("confidence", "patience")
KINDS = ("classification", "regression", "tagging")
# TokenRows leave once no more than this part of the tokens is of open rows.
OPEN_PART = 0.8


@dataclasses.dataclass(frozen=True)
class ExitRule:
    """When a row is decided.

    Attributes:
        kind: what the logits are: "classification", "regression" ([batch, 1]) or "tagging" (a class for each token; a
            row is decided when all its tokens are).
        name: "confidence": the largest probability is at least the threshold (for a number: it moved by no more than
            the threshold since the step before). "patience": the answer stayed the same for as many steps in a row as
            the threshold says (arXiv:2006.04152); numbers are the same within `tolerance`.
        tolerance: see "patience".

    Raises:
        UserError: an unknown kind or name.
    """

    kind: str = "classification"
    name: str = "confidence"
    tolerance: float = 0.1

    def __post_init__(self):
        if self.kind not in KINDS:
            raise UserError(f"early exit of kind '{self.kind}' is none of {', '.join(KINDS)}")
        if self.name not in RULES:
            raise UserError(f"early exit rule '{self.name}' is none of {', '.join(RULES)}")

    def decide(self, logits, before, unchanged, threshold) -> tuple[tf.Tensor, tf.Tensor]:
        """Says of each answer whether it is decided, and for how many steps it has not changed.

        Args:
            logits: float32 [answers, units] of this step.
            before: Those of the step before, infinite at the first.
            unchanged: float32 [answers], what this gave at the step before.
            threshold: float32 [answers].

        Returns:
            bool [answers] and float32 [answers].
        """
        # Not NaN: grappler makes ">" of "not <=".
        has_before = tf.math.is_finite(before[:, 0])
        if self.kind == "regression":
            moved = tf.abs(logits - before)[:, 0]
            same = (moved <= self.tolerance) & has_before
        else:
            same = (tf.argmax(logits, 1) == tf.argmax(before, 1)) & has_before
        unchanged = tf.where(same, unchanged + 1, 0.0)
        if self.name == "patience":
            return unchanged >= threshold, unchanged
        if self.kind == "regression":
            return (moved <= threshold) & has_before, unchanged
        return tf.reduce_max(tf.nn.softmax(logits), axis=1) >= threshold, unchanged


class State(NamedTuple):
    """From step to step: the rows that are still there, open or decided. `answers` are rows or, for tagging, tokens."""

    step: tf.Tensor
    depth: Any  # the encoder's, whose tensors are [tokens, ...]
    row: tf.Tensor  # [rows], their numbers in the batch
    is_open: tf.Tensor  # [rows]
    threshold: tf.Tensor  # [rows]
    cell: tf.Tensor  # [answers], where they go in the results
    before: tf.Tensor  # [answers, units]
    unchanged: tf.Tensor  # [answers]
    logits: tf.Tensor  # [all answers, units], results so far
    steps: tf.Tensor  # [batch], results so far
    tables: Tables


class EarlyExit:
    """One batch on its way through the steps of an InferenceEncoder."""

    def __init__(self, encoder, batch: FlatBatch, exit_heads: Sequence, rule: ExitRule):
        self.encoder, self.batch, self.rule = encoder, batch, rule
        self.by_token = rule.kind == "tagging"
        self.kernels = tf.stack([array(head.kernel) for head in exit_heads])
        self.biases = tf.stack([array(head.bias) for head in exit_heads])

    def start(self, depth: Any, threshold: tf.Tensor) -> State:
        batch, units = self.batch, self.biases.shape[1]
        cell = batch.cells if self.by_token else batch.order
        answers = batch.size * batch.length if self.by_token else batch.size
        return State(
            step=tf.constant(0),
            depth=depth,
            row=batch.order,
            is_open=tf.fill([batch.size], True),
            threshold=tf.gather(threshold, batch.order),
            cell=cell,
            before=tf.fill([tf.size(cell), units], float("inf")),
            unchanged=tf.zeros([tf.size(cell)]),
            logits=tf.zeros([answers, units]),
            steps=tf.zeros([batch.size], tf.int32),
            tables=batch.rows.tables,
        )

    def repeat(self, segment, state: State) -> State:
        """A run of equal steps, as long as there are open rows."""
        end = state.step + segment.repeats * len(segment.steps)

        def layer(state):
            for which in segment.steps:
                rows = TokenRows(state.tables, self.encoder.config)
                depth = self.encoder.apply(which, state.step, state.depth, rows)
                state = self._leave(self._answer(state._replace(depth=depth)))
            return (state,)

        shapes = tf.nest.map_structure(any_size, state)
        return tf.while_loop(
            lambda state: (state.step < end) & tf.reduce_any(state.is_open), layer, (state,), (shapes,)
        )[0]

    def results(self, state: State) -> dict[str, tf.Tensor]:
        logits = state.logits
        if self.by_token:
            logits = tf.reshape(logits, [self.batch.size, self.batch.length, self.biases.shape[1]])
            logits *= tf.cast(self.batch.mask, tf.float32)[:, :, tf.newaxis]
        return {"logits": logits, "steps": state.steps}

    def _answer(self, state: State) -> State:
        """The answers after one more step. Those of open rows are written down, and some rows are open no more."""
        vectors, lengths = self.encoder.hidden(state.depth), state.tables.lengths
        row = tf.range(tf.size(state.row))
        if self.by_token:
            vectors = vectors[: tf.size(state.cell)]
            row = tf.searchsorted(tf.cumsum(lengths), tf.range(tf.size(state.cell)), side="right")
        else:
            vectors = tf.tanh(self.encoder.pooler(tf.gather(vectors, state.tables.starts)))
        logits = tf.matmul(tf.cast(vectors, tf.float32), self.kernels[state.step]) + self.biases[state.step]
        decided, unchanged = self.rule.decide(logits, state.before, state.unchanged, tf.gather(state.threshold, row))
        if self.by_token:
            padding = ~tf.gather(tf.reshape(self.batch.mask, [-1]), state.cell)
            open_tokens = tf.cast(~(decided | padding), tf.int32)
            decided = tf.math.unsorted_segment_sum(open_tokens, row, tf.size(state.row)) == 0
        step = state.step + 1
        was_open = tf.gather(state.is_open, row)[:, tf.newaxis]
        return state._replace(
            step=step,
            is_open=state.is_open & ~decided & (step < self.biases.shape[0]),
            before=logits,
            unchanged=unchanged,
            logits=_put(state.logits, state.cell, tf.where(was_open, logits, tf.gather(state.logits, state.cell))),
            steps=_put(state.steps, state.row, tf.where(state.is_open, step, tf.gather(state.steps, state.row))),
        )

    def _leave(self, state: State) -> State:
        """Takes decided rows out if that pays."""
        lengths = state.tables.lengths
        open_tokens = tf.cast(tf.reduce_sum(tf.where(state.is_open, lengths, 0)), tf.float32)
        pays = open_tokens <= OPEN_PART * tf.cast(tf.reduce_sum(lengths), tf.float32)
        return tf.cond(pays & (open_tokens > 0), lambda: self._without_decided(state), lambda: state)

    def _without_decided(self, state: State) -> State:
        stay, lengths = tf.where(state.is_open)[:, 0], tf.boolean_mask(state.tables.lengths, state.is_open)
        tokens = ranges(tf.gather(state.tables.starts, stay), lengths)
        answers = tokens if self.by_token else stay
        row = tf.gather(state.row, stay)
        skips = self.encoder.options.padding == "skipped"
        mask = None if skips else tf.gather(self.batch.mask, row)
        padded = tokens if mask is not None else tf.pad(tokens, [[0, missing(tf.size(tokens))]])
        return state._replace(
            depth=tf.nest.map_structure(lambda tensor: tf.gather(tensor, padded), state.depth),
            row=row,
            is_open=tf.gather(state.is_open, stay),
            threshold=tf.gather(state.threshold, stay),
            cell=tf.gather(state.cell, answers),
            before=tf.gather(state.before, answers),
            unchanged=tf.gather(state.unchanged, answers),
            tables=make_tables(lengths, self.encoder.config, mask),
        )


def _put(results: tf.Tensor, places: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    return tf.tensor_scatter_nd_update(results, places[:, tf.newaxis], values)


def any_size(tensor: tf.Tensor) -> tf.TensorShape:
    """The shape of what has another number of rows or tokens from step to step."""
    return tf.TensorShape([None] * min(tensor.shape.rank, 1)).concatenate(tensor.shape[1:])

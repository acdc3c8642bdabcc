"""Batched early exit: after every step a head answers, rows that are decided leave, the rest go on."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from serving.inference.batch import Batch
from serving.inference.rows import Rows, ranges
from serving.inference.weights import array
from tfrecords.errors import UserError

RULES = ("confidence", "patience")
KINDS = ("classification", "regression", "tagging")


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
        """Of each answer whether it is decided, and for how many steps it has not changed.

        Args:
            logits, before: float32 [answers, units] of this step and of the one before (NaN at the first).
            unchanged: float32 [answers], of the step before.
            threshold: float32 [answers].
        """
        if self.kind == "regression":
            moved = tf.abs(logits - before)[:, 0]
            same = moved <= self.tolerance
        else:
            same = (tf.argmax(logits, 1) == tf.argmax(before, 1)) & ~tf.math.is_nan(before[:, 0])
        unchanged = tf.where(same, unchanged + 1, 0.0)
        if self.name == "patience":
            return unchanged >= threshold, unchanged
        if self.kind == "regression":
            return moved <= threshold, unchanged
        return tf.reduce_max(tf.nn.softmax(logits), axis=1) >= threshold, unchanged


class State(NamedTuple):
    """From step to step. `rows` are those still in the batch; `answers` are rows or, for tagging, their tokens."""

    step: tf.Tensor
    hidden: tf.Tensor  # [tokens, hidden_size]
    lengths: tf.Tensor  # [rows], ascending
    row: tf.Tensor  # [rows], their numbers in the batch
    cell: tf.Tensor  # [answers], where they go in the results
    threshold: tf.Tensor  # [rows]
    before: tf.Tensor  # [answers, units]
    unchanged: tf.Tensor  # [answers]
    logits: tf.Tensor  # [all answers, units], results so far
    steps: tf.Tensor  # [batch], results so far


class EarlyExit:
    """One batch's way through the steps of an InferenceEncoder."""

    def __init__(self, encoder, batch: Batch, exit_heads: Sequence, rule: ExitRule):
        self.encoder, self.batch, self.rule = encoder, batch, rule
        self.by_token = rule.kind == "tagging"
        self.kernels = tf.stack([array(head.kernel) for head in exit_heads])
        self.biases = tf.stack([array(head.bias) for head in exit_heads])

    def start(self, hidden: tf.Tensor, threshold: tf.Tensor) -> State:
        batch, units = self.batch, self.biases.shape[1]
        cell = batch.cells if self.by_token else batch.order
        answers = batch.size * batch.length if self.by_token else batch.size
        return State(
            step=tf.constant(0),
            hidden=hidden,
            lengths=batch.rows.lengths,
            row=batch.order,
            cell=cell,
            threshold=tf.gather(threshold, batch.order),
            before=tf.fill([tf.size(cell), units], float("nan")),
            unchanged=tf.zeros([tf.size(cell)]),
            logits=tf.zeros([answers, units]),
            steps=tf.zeros([batch.size], tf.int32),
        )

    def repeat(self, segment, state: State) -> State:
        """A run of equal steps, as long as there are rows."""
        count = segment.repeats * len(segment.steps)
        end = state.step + count

        def layer(*state):
            state = State(*state)
            for which in segment.steps:
                hidden = self.encoder.apply(which, state.step, state.hidden, self._rows(state))
                state = self._leave(state._replace(hidden=hidden))
            return tuple(state)

        def go_on(*state):
            return (State(*state).step < end) & (tf.size(State(*state).row) > 0)

        shapes = tuple(tf.TensorShape([None] * min(part.shape.rank, 1)).concatenate(part.shape[1:]) for part in state)
        return State(*tf.while_loop(go_on, layer, tuple(state), shape_invariants=shapes))

    def results(self, state: State) -> dict[str, tf.Tensor]:
        logits = state.logits
        if self.by_token:
            logits = tf.reshape(logits, [self.batch.size, self.batch.length, self.biases.shape[1]])
            logits *= tf.cast(self.batch.mask, tf.float32)[:, :, tf.newaxis]
        return {"logits": logits, "steps": state.steps}

    def _rows(self, state: State) -> Rows:
        if self.encoder.options.padding == "skipped":
            return Rows(state.lengths, self.encoder.config)
        return Rows(state.lengths, self.encoder.config, tf.gather(self.batch.mask, state.row))

    def _answers(self, state: State) -> tf.Tensor:
        vectors = state.hidden
        if not self.by_token:
            vectors = tf.tanh(self.encoder.pooler(tf.gather(vectors, tf.cumsum(state.lengths, exclusive=True))))
        return tf.matmul(vectors, self.kernels[state.step]) + self.biases[state.step]

    def _leave(self, state: State) -> State:
        """Writes down the answers of decided rows, at the last step of all, and takes those rows out."""
        logits = self._answers(state)
        row = tf.range(tf.size(state.row))
        if self.by_token:
            row = tf.searchsorted(tf.cumsum(state.lengths), tf.range(tf.shape(logits)[0]), side="right")
        decided, unchanged = self.rule.decide(logits, state.before, state.unchanged, tf.gather(state.threshold, row))
        if self.by_token:
            padding = ~tf.gather(tf.reshape(self.batch.mask, [-1]), state.cell)
            open_tokens = tf.cast(~(decided | padding), tf.int32)
            decided = tf.math.unsorted_segment_sum(open_tokens, row, tf.size(state.row)) == 0
        leaves = decided | (state.step == self.biases.shape[0] - 1)
        answers_leave = tf.gather(leaves, row)
        left = tf.boolean_mask(state.row, leaves)
        stay, lengths = tf.where(~leaves)[:, 0], tf.boolean_mask(state.lengths, ~leaves)
        tokens = ranges(tf.gather(tf.cumsum(state.lengths, exclusive=True), stay), lengths)
        answers = tokens if self.by_token else stay
        return State(
            step=state.step + 1,
            hidden=tf.gather(state.hidden, tokens),
            lengths=lengths,
            row=tf.gather(state.row, stay),
            cell=tf.gather(state.cell, answers),
            threshold=tf.gather(state.threshold, stay),
            before=tf.gather(logits, answers),
            unchanged=tf.gather(unchanged, answers),
            logits=tf.tensor_scatter_nd_update(
                state.logits,
                tf.boolean_mask(state.cell, answers_leave)[:, tf.newaxis],
                tf.boolean_mask(logits, answers_leave),
            ),
            steps=tf.tensor_scatter_nd_update(
                state.steps, left[:, tf.newaxis], tf.fill([tf.size(left)], state.step + 1)
            ),
        )

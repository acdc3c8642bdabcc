"""Early exit in batches: a head answers after every step, and rows with a decided answer leave the batch.

A smaller batch needs new index tables, which is slow. So rows leave only once decided rows have 20 % of the tokens.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.layers.block import Step
from albert_tf.layers.depth import DepthLoop, Runner, Segment
from albert_tf.models.exit_rules import ExitRule, relative
from serving.inference.layers import array
from serving.inference.rows import FlatRows, Tables, missing, ranges

# Decided rows leave when open rows hold at most this part of the tokens.
OPEN_PART = 0.8


class State(NamedTuple):
    """The loop state of rows still in the batch; a row is open until decided.

    There is an answer per row or, for tagging, per token.
    """

    depth: Any  # the encoder's, whose tensors are [tokens, ...]
    row: Tensor  # [rows], their numbers in the batch
    is_open: Tensor  # [rows]
    threshold: Tensor  # [rows]
    cell: Tensor  # [answers], where they go in the results
    before: Tensor  # [answers, units]; no units where the rule reads states
    unchanged: Tensor  # [answers], the number of steps since each answer changed
    logits: Tensor  # [all answers, units], results so far
    steps: Tensor  # [batch], results so far
    tables: Tables
    features: dict[str, Tensor]  # of the rows
    tokens: Tensor  # [tokens], where they are in the flat batch, if there are features


def exit_early(
    encoder: Any, runner: Runner, depth: Any, exit_heads: Sequence, threshold: Tensor, rule: ExitRule, features: dict
) -> dict[str, Tensor]:
    """Runs the steps with early exit; see `InferenceEncoder.early_exit`.

    `depth` is the depth loop's first state. Returns `logits` and `steps`.
    """
    exits = _ExitRunner(encoder, runner, exit_heads, rule, features)
    return exits.results(DepthLoop("loop", stops=True)(exits, exits.start(depth, threshold)))


class _ExitRunner(Runner):
    def __init__(self, encoder: Any, inner: Runner, exit_heads: Sequence, rule: ExitRule, features: dict):
        super().__init__(inner)
        self.encoder, self.rule, self.batch, self.features = encoder, rule, inner.rows.batch, features
        self.by_token = rule.by_token
        self.units = exit_heads[0].units if exit_heads else encoder.config.hidden_size
        if exit_heads:
            self.kernels = tf.stack([array(head.kernel) for head in exit_heads])
            self.biases = tf.stack([array(head.bias) for head in exit_heads])
        self.answer = self._head if exit_heads else lambda vectors, step: vectors

    def start(self, depth: Any, threshold: Tensor) -> State:
        batch, units, reads_answers = self.batch, self.units, self.rule.reads_answers
        cell = batch.cells if self.by_token else batch.order
        answers = batch.size * batch.length if self.by_token else batch.size
        return State(
            depth=depth,
            row=batch.order,
            is_open=tf.fill([batch.size], True),
            threshold=tf.gather(threshold, batch.order),
            cell=cell,
            before=tf.fill([tf.size(cell), units if reads_answers else 0], float("inf")),
            unchanged=tf.zeros([tf.size(cell)]),
            logits=tf.zeros([answers, units]),
            steps=tf.zeros([batch.size], tf.int32),
            tables=self.rows.tables,
            features=self.rows.features,
            tokens=batch.cells if self.rows.features else (),
        )

    def repeat(self, place: int, segment: Segment, cycle: Callable, state: State, loop: DepthLoop) -> State:
        return tf.while_loop(
            lambda i, state: (i < segment.repeats) & tf.reduce_any(state.is_open),
            lambda i, state: (i + 1, cycle(i, state)),
            (0, state),
        )[1]

    def step(self, step: Step, state: State) -> tuple[State, Any]:
        runner = self.encoder.runner(self.rows.again(state.tables, state.features))
        before, finish = state.depth, self.encoder.finish
        depth, read = runner.step(step, before)
        hidden = finish(runner.carried(depth))
        state = self._answer(state._replace(depth=depth), step.number, hidden, lambda: finish(runner.carried(before)))
        return self._leave(state), read

    def results(self, state: State) -> dict[str, Tensor]:
        logits = state.logits
        if self.by_token:
            logits = tf.reshape(logits, [self.batch.size, self.batch.length, self.units])
        return {"logits": logits, "steps": state.steps}

    def _answer(self, state: State, step: Tensor, hidden: Tensor, before: Callable[[], Tensor]) -> State:
        row = self._rows(state)
        vectors = self._vectors(state, hidden)
        logits = self.answer(vectors, step)
        if self.rule.reads_answers:
            threshold = tf.gather(state.threshold, row)
            decided, unchanged = self.rule.decide(logits, state.before, state.unchanged, threshold)
            decided = self._sums(state, row, tf.cast(~decided, tf.float32)) == 0
            state = state._replace(before=logits)
        else:
            moved = vectors - self._vectors(state, before())
            squares = (self._sums(state, row, tf.reduce_sum(one * one, axis=1)) for one in (moved, vectors))
            decided, unchanged = relative(*squares) < state.threshold, state.unchanged
        done = step + 1
        was_open = tf.gather(state.is_open, row)[:, tf.newaxis]
        return state._replace(
            is_open=state.is_open & ~decided & (done < self.config.num_steps),
            unchanged=unchanged,
            logits=_put(state.logits, state.cell, tf.where(was_open, logits, tf.gather(state.logits, state.cell))),
            steps=_put(state.steps, state.row, tf.where(state.is_open, done, tf.gather(state.steps, state.row))),
        )

    def _head(self, vectors: Tensor, step: Tensor) -> Tensor:
        pooled = self.encoder.of_tokens(vectors) if self.by_token else self.encoder.apply_pooler(vectors)
        return tf.matmul(pooled, self.kernels[step]) + self.biases[step]

    def _rows(self, state: State) -> Tensor:
        if not self.by_token:
            return tf.range(tf.size(state.row))
        return tf.searchsorted(tf.cumsum(state.tables.lengths), tf.range(tf.size(state.cell)), side="right")

    def _vectors(self, state: State, hidden: Tensor) -> Tensor:
        vectors = hidden[: tf.size(state.cell)] if self.by_token else tf.gather(hidden, state.tables.starts)
        return tf.cast(vectors, tf.float32)

    def _sums(self, state: State, row: Tensor, values: Tensor) -> Tensor:
        if not self.by_token:
            return values
        return tf.math.unsorted_segment_sum(values, row, tf.size(state.row))

    def _leave(self, state: State) -> State:
        lengths = state.tables.lengths
        open_tokens = tf.cast(tf.reduce_sum(tf.where(state.is_open, lengths, 0)), tf.float32)
        pays = open_tokens <= OPEN_PART * tf.cast(tf.reduce_sum(lengths), tf.float32)
        return tf.cond(pays & (open_tokens > 0), lambda: self._without_decided(state), lambda: state)

    def _without_decided(self, state: State) -> State:
        stay, lengths = tf.where(state.is_open)[:, 0], tf.boolean_mask(state.tables.lengths, state.is_open)
        tokens = ranges(tf.gather(state.tables.starts, stay), lengths)
        answers = tokens if self.by_token else stay
        padded = tf.pad(tokens, [[0, missing(tf.size(tokens))]])
        cells = tf.gather(state.tokens, tokens) if self.rows.features else None
        rows = FlatRows(self.batch, self.config, self.rows.attention, lengths, cells)
        if cells is not None:
            rows = self.encoder.with_features(rows, self.features)
        by_row = {name: tf.gather(getattr(state, name), stay) for name in ("row", "is_open", "threshold")}
        by_answer = {name: tf.gather(getattr(state, name), answers) for name in ("cell", "before", "unchanged")}
        return state._replace(
            depth=tf.nest.map_structure(lambda tensor: tf.gather(tensor, padded), state.depth),
            tables=rows.tables,
            features=rows.features,
            tokens=state.tokens if cells is None else cells,
            **by_row,
            **by_answer,
        )


def _put(results: Tensor, places: Tensor, values: Tensor) -> Tensor:
    return tf.tensor_scatter_nd_update(results, places[:, tf.newaxis], values)

"""The walk to a fixed point in exports: the solver of `albert_tf.extensions.fixed_point`, without padding."""

from collections.abc import Callable

import tensorflow as tf

from albert_tf.extensions.equilibrium import repeated_segment
from albert_tf.extensions.fixed_point import Solution, solve
from albert_tf.layers.encoder import AlbertEncoder
from serving.inference.dense import array
from serving.inference.rows import FlatBatch


class FlatRows:
    """Rows whose tokens lie one after another, as the solver asks for them; padding is in none.

    Args:
        batch: the rows, in the order of `batch.rows`.
        count: tokens that are computed, those included that sizes are rounded up by.
    """

    def __init__(self, batch: FlatBatch, count: tf.Tensor):
        lengths = batch.rows.tables.lengths
        self.size = tf.size(lengths)
        row = tf.repeat(tf.range(self.size), lengths)
        counts = tf.gather(tf.reshape(batch.mask, [-1]), batch.cells)
        more = [[0, count - tf.size(row)]]
        self.row = tf.pad(row, more)
        # What has a negative number is left out of sums.
        self.counted = tf.pad(tf.where(counts, row, -1), more, constant_values=-1)

    def sum(self, values: tf.Tensor) -> tf.Tensor:
        """Adds up [..., tokens] over each row's tokens: [..., rows]."""
        axes = list(range(values.shape.rank))
        by_token = tf.transpose(values, axes[-1:] + axes[:-1])
        return tf.transpose(tf.math.unsorted_segment_sum(by_token, self.counted, self.size), axes[1:] + axes[:1])

    def spread(self, values: tf.Tensor) -> tf.Tensor:
        """Gives each token its row's value: [rows] to [tokens]."""
        return tf.gather(values, self.row)


class InferenceEquilibrium:
    """The solver, the gate and the place in the plan of what an AlbertEncoder runs to its fixed point."""

    def __init__(self, encoder: AlbertEncoder):
        self.place = repeated_segment(encoder.config)
        self.solver, self.gate = encoder.equilibrium.extension.solver, array(encoder.equilibrium.gate)

    def injected(self, state: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """Gives what the blocks read: state + gate * x, in the dtype of x."""
        return tf.cast(tf.cast(state, tf.float32) + self.gate * tf.cast(x, tf.float32), x.dtype)

    def solve(self, blocks: Callable, x: tf.Tensor, batch: FlatBatch) -> Solution:
        """Runs blocks, from [tokens, hidden_size] to the same shape, to their fixed point."""
        return solve(lambda state: blocks(self.injected(state, x)), x, FlatRows(batch, tf.shape(x)[0]), self.solver)

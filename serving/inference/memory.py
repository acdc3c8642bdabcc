"""Rows of a document one after the other: each attends also to what entered the steps in the rows before it.

Source: XLNet's memory (zihangdai/xlnet modeling.py:189-202), as `albert_tf.layers.relative` has it; of a row that ends
with padding its tokens alone are remembered.
"""

from typing import Any

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.layers.depth import segments
from serving.inference.attention import MASKED_SCORE, Reach, Rows, attend_heads, differing
from serving.inference.early_exit import any_size
from serving.inference.relative import Pairs
from serving.inference.rows import first_tokens


class RowsWithMemory(Rows):
    """A padded batch with memory before each row, in place of FlatBatch and TokenRows.

    Args:
        mask: bool [batch, length], the real tokens.
        config: of the encoder.
        segment_ids: int32 [batch, length]; None: there is one. Memory's is 0.
        memory: float [batch, steps, places, hidden_size].
        lengths: int32 [batch], how many of the last places hold something.
    """

    def __init__(
        self,
        mask: tf.Tensor,
        config: AlbertConfig,
        segment_ids: tf.Tensor | None,
        memory: tf.Tensor,
        lengths: tf.Tensor,
    ):
        self.config, self.memory, self.rows = config, memory, self
        self.mask = mask = mask | first_tokens(mask, config)
        self.size, self.length = tf.unstack(tf.shape(mask))
        self.places = tf.shape(memory)[2]
        self.lengths = tf.clip_by_value(lengths, 0, self.places)
        remembered = tf.range(self.places) >= self.places - self.lengths[:, tf.newaxis]
        real = tf.concat([remembered, mask], axis=1)
        self.bias = tf.where(real, 0.0, MASKED_SCORE)[:, tf.newaxis, tf.newaxis]
        self.real = real[:, tf.newaxis, :, tf.newaxis]
        self.summaries = tf.reduce_max(tf.where(mask, tf.range(self.length), 0), axis=1)
        self.differs = None
        if segment_ids is not None:
            self.differs = differing(segment_ids, tf.pad(segment_ids, [[0, 0], [self.places, 0]]))
        by_step = tf.transpose(memory, [1, 0, 2, 3])
        self._by_step = tf.reshape(by_step, [config.num_steps, self.size * self.places, config.hidden_size])

    def with_memory(self, inputs: tf.Tensor, step: tf.Tensor | int) -> tf.Tensor:
        return tf.concat([inputs, tf.cast(self._by_step[step], inputs.dtype)], axis=0)

    def attend(self, query_key_value: tf.Tensor, reach: Reach) -> tf.Tensor:
        """Attends from all tokens, whichever are asked for."""
        relative = reach.relative
        assert relative is not None
        heads, count = self.config.num_attention_heads, self.size * self.length

        def by_head(flat, length):
            parts = tf.reshape(flat, [self.size, length, 3, heads, self.config.head_size])
            return tf.transpose(parts, [2, 0, 3, 1, 4])

        own, past = by_head(query_key_value[:count], self.length), by_head(query_key_value[count:], self.places)
        # What padding holds depends on how far the row is padded, and 0 times NaN or infinity is NaN.
        key, value = tf.unstack(tf.where(self.real, tf.concat([past[1:], own[1:]], axis=3), 0))

        def score(query, key):
            return relative(query, key, Pairs(self.differs), reach.step, reach.multiply)

        contexts = attend_heads(
            own[0], key, value, lambda: self.bias, None, self.config, Reach(multiply=reach.multiply), score
        )
        return tf.reshape(tf.transpose(contexts, [0, 2, 1, 3]), [-1, self.config.hidden_size])

    def summary_tokens(self, hidden: tf.Tensor) -> tf.Tensor:
        return tf.gather(self.rectangle(hidden), self.summaries, axis=1, batch_dims=1)

    def restore(self, of_rows: tf.Tensor) -> tf.Tensor:
        """Gives [batch, hidden_size] as float32."""
        return tf.cast(of_rows, tf.float32)

    def rectangle(self, hidden: tf.Tensor) -> tf.Tensor:
        """Puts [tokens, hidden_size] into the batch's places, float32."""
        return tf.reshape(tf.cast(hidden, tf.float32), [self.size, self.length, self.config.hidden_size])

    def remembered(self, entered: tf.Tensor) -> dict[str, tf.Tensor]:
        """Gives the memory for the rows that follow, by the names that signatures have for it.

        Args:
            entered: [steps, tokens, hidden_size], what entered each step.

        Returns:
            memory float32 [batch, steps, memory_length, hidden_size], zeros before what there is, and memory_lengths
            int32 [batch].
        """
        config, most = self.config, self.config.memory_length
        kept = tf.reduce_sum(tf.cast(self.mask, tf.int32), axis=1)
        if config.reuse_length:
            kept = tf.minimum(kept, config.reuse_length)
        own = tf.reshape(entered, [config.num_steps, self.size, self.length, config.hidden_size])
        own = tf.cast(tf.transpose(own, [1, 0, 2, 3]), tf.float32)
        lengths = tf.minimum(self.lengths + kept, most)
        places = (self.places + kept - most)[:, tf.newaxis] + tf.range(most)
        found = tf.gather(tf.concat([self.memory, own], axis=2), tf.maximum(places, 0), axis=2, batch_dims=1)
        is_there = tf.range(most) >= most - lengths[:, tf.newaxis]
        found = tf.where(is_there[:, tf.newaxis, :, tf.newaxis], found, 0.0)
        return {"memory": found, "memory_lengths": lengths}


def encode_with_memory(encoder, input_ids, input_mask, segment_ids, memory, memory_lengths) -> dict[str, tf.Tensor]:
    """Encodes rows that follow others.

    Args:
        encoder: an InferenceEncoder whose configuration has a memory_length.
        input_ids: int32 [batch, length].
        input_mask: int32 [batch, length], 1 for tokens.
        segment_ids: int32 [batch, length]; None: all 0.
        memory: float32 [batch, steps, places, hidden_size], as this gave it of the rows before; of a document's first
            rows anything, even of no places.
        memory_lengths: int32 [batch], how many of the last places hold something: 0 of a document's first row.

    Returns:
        What InferenceEncoder gives, and memory and memory_lengths for the rows that follow.
    """
    config = encoder.config
    message = f"memory has more than the {config.memory_length} places that this model remembers"
    fits = tf.debugging.assert_less_equal(tf.shape(memory)[2], config.memory_length, message)
    with tf.control_dependencies([fits]):
        memory = tf.identity(memory)
    rows = RowsWithMemory(tf.cast(input_mask, tf.bool), config, segment_ids, memory, memory_lengths)
    hidden = encoder.embeddings(input_ids, segment_ids, tf.range(rows.size * rows.length))
    state, entered = _walk(encoder, tf.cast(hidden, encoder.dtype), rows)
    return encoder.answers(rows, encoder.finish(state)) | rows.remembered(entered)


def _walk(encoder, state: tf.Tensor, rows: RowsWithMemory) -> tuple[tf.Tensor, tf.Tensor]:
    """The last state, and what entered each step, [steps, tokens, hidden_size]."""
    entered = tf.TensorArray(state.dtype, encoder.config.num_steps, element_shape=any_size(state))
    done: Any = 0
    for run in segments(encoder.config):

        def cycle(step, state, entered, run=run):
            for offset, which in enumerate(run.steps):
                entered = entered.write(step + offset, state)
                state = encoder.apply(which, step + offset, state, rows)
            return step + len(run.steps), state, entered

        end = done + run.repeats * len(run.steps)
        if run.repeats == 1:
            _, state, entered = cycle(done, state, entered)
        else:
            shapes = (tf.TensorShape([]), any_size(state), tf.TensorShape(None))
            loop = (tf.constant(done), state, entered)
            _, state, entered = tf.while_loop(lambda step, *_, end=end: step < end, cycle, loop, shapes)
        done = end
    return state, entered.stack()

"""Memory of a document: a row also attends to the rows before it, through their stored inputs to every step.

Source: zihangdai/xlnet modeling.py:189-202.
"""

from typing import Any

import tensorflow as tf

from albert_tf.base import Tensor
from albert_tf.extensions import relative
from albert_tf.layers.block import Step
from serving.inference.rows import MASKED_SCORE, BatchRows, RowPairs


class RowsWithMemory(BatchRows):
    """A padded batch whose rows are preceded by tokens in memory."""

    def remember(self, extension: Any, memory: Tensor, memory_lengths: Tensor) -> None:
        """Sets the memory [batch, steps, places, hidden_size]; only a row's last `memory_lengths` places are in use."""
        message = f"memory has more than the {extension.memory_length} places that this model remembers"
        fits = tf.debugging.assert_less_equal(tf.shape(memory)[2], extension.memory_length, message)
        with tf.control_dependencies([fits]):
            memory = tf.identity(memory)
        self.extension, self.memory, mask = extension, memory, self.batch.mask
        self.size, self.length, self.places = self.batch.size, self.batch.length, tf.shape(memory)[2]
        self.lengths = tf.clip_by_value(memory_lengths, 0, self.places)
        remembered = tf.range(self.places) >= self.places - self.lengths[:, tf.newaxis]
        real = tf.concat([remembered, mask], axis=1)
        self.bias = tf.where(real, 0.0, MASKED_SCORE)[:, tf.newaxis, tf.newaxis]
        self.real = real[:, tf.newaxis, :, tf.newaxis]
        self.summaries = tf.reduce_max(tf.where(mask, tf.range(self.length), 0), axis=1)
        by_step = tf.transpose(memory, [1, 0, 2, 3])
        config = self.config
        self._by_step = tf.reshape(by_step, [config.num_steps, self.size * self.places, config.hidden_size])

    def of_batch(self, values: Tensor) -> Tensor:
        return values

    def add_feature(self, name: str, values: Tensor) -> None:
        self.features[name] = values, tf.pad(values, [[0, 0], [self.places, 0]])

    def attended(self, step: Step, inputs: Tensor) -> Tensor:
        return tf.concat([inputs, tf.cast(self._by_step[step.number], inputs.dtype)], axis=0)

    def attend(self, projected: Tensor, step: Step) -> Tensor:
        heads, count = self.config.num_attention_heads, self.size * self.length

        def by_head(flat: Tensor, length: Tensor) -> Tensor:
            parts = tf.reshape(flat, [self.size, length, 3, heads, self.config.head_size])
            return tf.transpose(parts, [2, 0, 3, 1, 4])

        own, past = by_head(projected[:count], self.length), by_head(projected[count:], self.places)
        # What padding holds depends on how far the row is padded, and 0 times NaN or infinity is NaN.
        key, value = tf.unstack(tf.where(self.real, tf.concat([past[1:], own[1:]], axis=3), 0))
        pairs = RowPairs(lambda: self.bias, self.features, None, self.hoisted)
        contexts = self.attention(own[0], key, value, pairs, step)
        contexts = tf.reshape(tf.transpose(contexts, [0, 2, 1, 3]), [-1, self.config.hidden_size])
        return self.summary_tokens(contexts) if step.only_summary else contexts

    def summary_tokens(self, hidden: Tensor) -> Tensor:
        return tf.gather(self.rectangle(hidden), self.summaries, axis=1, batch_dims=1)

    def remembered(self, entered: Tensor) -> dict[str, Tensor]:
        """Returns the next rows' `memory`, with zeros in front, and `memory_lengths`."""
        config, most = self.config, self.extension.memory_length
        kept = tf.reduce_sum(tf.cast(self.batch.mask, tf.int32), axis=1)
        if self.extension.reuse_length:
            kept = tf.minimum(kept, self.extension.reuse_length)
        own = tf.reshape(entered, [config.num_steps, self.size, self.length, config.hidden_size])
        own = tf.cast(tf.transpose(own, [1, 0, 2, 3]), tf.float32)
        lengths = tf.minimum(self.lengths + kept, most)
        places = (self.places + kept - most)[:, tf.newaxis] + tf.range(most)
        found = tf.gather(tf.concat([self.memory, own], axis=2), tf.maximum(places, 0), axis=2, batch_dims=1)
        is_there = tf.range(most) >= most - lengths[:, tf.newaxis]
        found = tf.where(is_there[:, tf.newaxis, :, tf.newaxis], found, 0.0)
        return {"memory": found, "memory_lengths": lengths}


class ArrayMemoryRunner(relative.RememberingRunner):
    """Stores the inputs of all steps in a TensorArray, as steps in a loop require."""

    def begin(self, hidden: Tensor) -> tuple[Any, tf.TensorArray]:
        shape = [None, self.config.hidden_size]
        return self.inner.begin(hidden), tf.TensorArray(hidden.dtype, self.config.num_steps, element_shape=shape)

    def step(self, step: Step, state: tuple) -> tuple[Any, Tensor]:
        entered = state[1].write(step.number, self.inner.carried(state[0]))
        after, read = self.inner.step(step, state[0])
        return (after, entered), read

    def report(self, state: tuple) -> tuple[dict, list, dict]:
        outputs, losses, values = self.inner.report(state[0])
        return outputs | self.rows.remembered(state[1].stack()), losses, values

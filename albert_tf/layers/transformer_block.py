"""One depth step: attention, then feed-forward. Blocks may have either half in common."""

import keras

from albert_tf.layers.attention import SelfAttention
from albert_tf.layers.feed_forward import FeedForward


class TransformerBlock(keras.layers.Layer):
    """Holds its two halves; a half that another block has already built keeps its weights."""

    def __init__(self, attention: SelfAttention, feed_forward: FeedForward, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention
        self.feed_forward = feed_forward

    def build(self, input_shape=None):
        for half in (self.attention, self.feed_forward):
            if not half.built:
                half.build(input_shape)

    def compute_output_shape(self, input_shape):
        return input_shape

    def call(self, hidden, bias, length, seed=None):
        """Arguments and results as `SelfAttention.call`."""
        hidden, probabilities = self.attention(hidden, bias=bias, length=length, seed=seed)
        return self.feed_forward(hidden, seed=seed), probabilities

"""One depth step over [tokens, hidden_size], and how attention sees which tokens are of one row."""

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.layers.dense import activation
from serving.inference.weights import AttentionWeights, FeedForwardWeights

MASKED_SCORE = -10000.0


class Rectangle:
    """Tokens of a padded batch, row after row.

    Args:
        mask: bool [batch, length], False for padding.
    """

    def __init__(self, mask: tf.Tensor, config: AlbertConfig):
        self.config = config
        self.batch, self.length = tf.unstack(tf.shape(mask))
        self.bias = tf.where(mask, 0.0, MASKED_SCORE)[:, tf.newaxis, tf.newaxis, :]

    def attend(self, query_key_value: tf.Tensor) -> tf.Tensor:
        """[tokens, 3 * hidden_size], the query scaled, to contexts [tokens, hidden_size]."""
        heads, size = self.config.num_attention_heads, self.config.head_size
        split = tf.reshape(query_key_value, [self.batch, self.length, 3, heads, size])
        query, key, value = tf.unstack(tf.transpose(split, [2, 0, 3, 1, 4]))
        scores = tf.cast(tf.matmul(query, key, transpose_b=True), tf.float32)
        probabilities = tf.cast(tf.nn.softmax(scores + self.bias), value.dtype)
        context = tf.transpose(tf.matmul(probabilities, value), [0, 2, 1, 3])
        return tf.reshape(context, [-1, self.config.hidden_size])

    def unflatten(self, hidden: tf.Tensor) -> tf.Tensor:
        return tf.reshape(hidden, [self.batch, self.length, self.config.hidden_size])


def attention(weights: AttentionWeights, hidden: tf.Tensor, rows: Rectangle) -> tf.Tensor:
    """Self-attention, residual, layer norm; float32 [tokens, hidden_size] to the same."""
    inputs = tf.cast(hidden, weights.output.kernel.dtype)
    context = weights.output(rows.attend(weights.query_key_value(inputs)))
    return weights.layer_norm(hidden + tf.cast(context, tf.float32))


def feed_forward(weights: FeedForwardWeights, hidden: tf.Tensor, config: AlbertConfig) -> tf.Tensor:
    """Two dense layers, residual, layer norm; float32 [tokens, hidden_size] to the same."""
    inputs = tf.cast(hidden, weights.output.kernel.dtype)
    transformed = weights.output(activation(config.hidden_act)(weights.intermediate(inputs)))
    return weights.layer_norm(hidden + tf.cast(transformed, tf.float32))

"""One depth step over [tokens, hidden_size]."""

import tensorflow as tf

from albert_tf.config import AlbertConfig
from albert_tf.layers.dense import activation
from serving.inference.rows import Rows
from serving.inference.weights import AttentionWeights, FeedForwardWeights


def attention(weights: AttentionWeights, hidden: tf.Tensor, rows: Rows) -> tf.Tensor:
    """Self-attention, residual, layer norm; float32 [tokens, hidden_size] to the same."""
    inputs = tf.cast(hidden, weights.output.dtype)
    context = weights.output(rows.attend(weights.query_key_value(inputs)))
    return weights.layer_norm(hidden + tf.cast(context, tf.float32))


def feed_forward(weights: FeedForwardWeights, hidden: tf.Tensor, config: AlbertConfig) -> tf.Tensor:
    """Two dense layers, residual, layer norm; float32 [tokens, hidden_size] to the same."""
    inputs = tf.cast(hidden, weights.output.dtype)
    transformed = weights.output(activation(config.hidden_act)(weights.intermediate(inputs)))
    return weights.layer_norm(hidden + tf.cast(transformed, tf.float32))

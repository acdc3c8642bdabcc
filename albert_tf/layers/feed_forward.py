"""The position-wise network with its residual and layer norm: the second half of a block."""

import keras

from albert_tf.config import AlbertConfig
from albert_tf.layers.dense import activation, dense
from albert_tf.layers.explicit_dropout import dropout, site_seed
from albert_tf.layers.layer_norm import LayerNorm


class FeedForward(keras.layers.Layer):
    """layer_norm(hidden + output(act(intermediate(hidden)))), post-norm as modeling.py:980-1015."""

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.intermediate = dense(
            config,
            config.intermediate_size,
            activation=activation(config.hidden_act),
            dtype=self.dtype_policy,
            name="intermediate",
        )
        self.output_dense = dense(config, config.hidden_size, dtype=self.dtype_policy, name="output")
        self.layer_norm = LayerNorm(config.layer_norm_eps, dtype=self.dtype_policy, name="layer_norm")

    def build(self, input_shape=None):
        self.intermediate.build((None, self.config.hidden_size))
        self.output_dense.build((None, self.config.intermediate_size))
        self.layer_norm.build((None, self.config.hidden_size))

    def call(self, hidden, seed=None):
        """hidden: [tokens, hidden_size]. Returns the same shape."""
        transformed = self.output_dense(self.intermediate(hidden))
        return self.layer_norm(hidden, dropout(transformed, self.config.hidden_dropout_prob, site_seed(seed, 2)))

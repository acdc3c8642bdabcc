"""What stands on an encoder: masked words, pairs, classes, spans."""

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers.dense import activation, dense
from albert_tf.layers.embeddings import Embeddings
from albert_tf.layers.layer_norm import LayerNorm


def gather_positions(sequence_output, positions):
    """[batch, sequence, hidden] and int [batch, n] to [batch, n, hidden], the rows at those positions."""
    batch, length, width = ops.shape(sequence_output)
    rows = ops.cast(positions, "int32") + length * ops.arange(batch, dtype="int32")[:, None]
    return ops.take(ops.reshape(sequence_output, (-1, width)), rows, axis=0)


class MaskedLMHead(keras.layers.Layer):
    """Vectors to vocabulary logits through the transposed word embeddings (run_pretraining.py:294-337).

    The embeddings belong to the encoder: they are held, not owned, so that no weight is counted or saved twice.
    """

    def __init__(self, config: AlbertConfig, embeddings: Embeddings, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self._embeddings = lambda: embeddings
        # brightmart/albert_zh transforms at hidden_size and goes back to words through its projection, transposed.
        self.width = embeddings.width
        self.dense = dense(
            config, self.width, activation=activation(config.hidden_act), dtype=self.dtype_policy, name="dense"
        )
        self.layer_norm = LayerNorm(config.layer_norm_eps, dtype=self.dtype_policy, name="layer_norm")

    def build(self, input_shape=None):
        self.dense.build((None, self.config.hidden_size))
        self.layer_norm.build((None, self.width))
        self.output_bias = self.add_weight(name="output_bias", shape=(self.config.vocab_size,), initializer="zeros")

    def call(self, vectors):
        """[..., hidden_size] to float32 logits [..., vocab_size]."""
        embeddings = self._embeddings()
        leading = ops.shape(vectors)[:-1]
        flat = ops.reshape(vectors, (-1, self.config.hidden_size))
        words = self.layer_norm(self.dense(flat))
        if self.config.factorization == "word" and embeddings.projection is not None:
            words = ops.matmul(words, ops.transpose(ops.cast(embeddings.projection.kernel, words.dtype)))
        table = ops.cast(embeddings.word_embeddings, words.dtype)
        logits = ops.cast(ops.matmul(words, ops.transpose(table)), "float32") + ops.cast(self.output_bias, "float32")
        return ops.reshape(logits, (*leading, self.config.vocab_size))

"""What stands on an encoder: masked words, pairs, classes, spans."""

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers.dense import activation, dense, kernel_of
from albert_tf.layers.embeddings import Embeddings
from albert_tf.layers.layer_norm import LayerNorm
from albert_tf.layers.resumable_dropout import ResumableDropout


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

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.config.vocab_size)

    def call(self, vectors):
        """[..., hidden_size] to float32 logits [..., vocab_size]."""
        embeddings = self._embeddings()
        leading = ops.shape(vectors)[:-1]
        flat = ops.reshape(vectors, (-1, self.config.hidden_size))
        words = self.layer_norm(self.dense(flat))
        if self.config.factorization == "word" and embeddings.projection is not None:
            words = ops.matmul(words, ops.transpose(kernel_of(embeddings.projection, words.dtype)))
        table = ops.cast(embeddings.word_embeddings, words.dtype)
        logits = ops.cast(ops.matmul(words, ops.transpose(table)), "float32") + ops.cast(self.output_bias, "float32")
        return ops.reshape(logits, (*leading, self.config.vocab_size))


class JointSpanHead(keras.layers.Layer):
    """Start; end given a start; and whether there is an answer (squad_utils.py:1428-1575 of google-research/albert)."""

    def __init__(self, config: AlbertConfig, dropout: float, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        own = {"dtype": self.dtype_policy}
        self.start = dense(config, 1, name="start", **own)
        self.end_hidden = dense(config, config.hidden_size, activation="tanh", name="end_hidden", **own)
        self.end_norm = LayerNorm(config.layer_norm_eps, name="end_norm", **own)
        self.end = dense(config, 1, name="end", **own)
        self.answer_hidden = dense(config, config.hidden_size, activation="tanh", name="answer_hidden", **own)
        self.dropout = ResumableDropout(dropout, name="dropout", **own)
        self.answer = dense(config, 1, use_bias=False, name="answer", **own)

    def build(self, input_shape=None):
        width = self.config.hidden_size
        for layer in (self.start, self.end_norm, self.end, self.answer):
            layer.build((None, width))
        for layer in (self.end_hidden, self.answer_hidden):
            layer.build((None, 2 * width))

    def compute_output_shape(self, input_shape):
        return input_shape[:-1]

    def parts(self) -> dict[str, keras.layers.Layer]:
        names = ("start", "end_hidden", "end_norm", "end", "answer_hidden", "answer")
        return {name: getattr(self, name) for name in names}

    def start_logits(self, hidden):
        """[batch, sequence, hidden_size] to [batch, sequence]."""
        return self.start(hidden)[..., 0]

    def end_logits(self, hidden, starts):
        """hidden and int32 starts [batch, n] to float32 [batch, n, sequence]: each end's logit given each start."""
        count, length = ops.shape(starts)[1], ops.shape(hidden)[1]
        given = gather_positions(hidden, starts)[:, :, None]
        pairs = [ops.repeat(hidden[:, None], count, axis=1), ops.repeat(given, length, axis=2)]
        ends = self.end(self.end_norm(self.end_hidden(ops.concatenate(pairs, axis=-1))))
        return ops.cast(ends[..., 0], "float32")

    def answerable_logits(self, hidden, start_probabilities, training):
        """hidden and probabilities [batch, sequence] to float32 [batch]; above 0 says that there is no answer."""
        expected = ops.sum(hidden * start_probabilities[:, :, None], axis=1)
        answer = self.answer_hidden(ops.concatenate([expected, hidden[:, 0]], axis=-1))
        return ops.cast(self.answer(self.dropout(answer, training=training))[:, 0], "float32")

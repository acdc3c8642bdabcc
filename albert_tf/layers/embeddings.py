"""Token ids to vectors of hidden_size: words, positions and segments at their own width, then the projection."""

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers.dense import dense, initializer
from albert_tf.layers.explicit_dropout import dropout
from albert_tf.layers.layer_norm import LayerNorm
from tfrecords.base.errors import UserError


class Embeddings(keras.layers.Layer):
    """Factorised embeddings: sum, layer norm, dropout, projection (modeling.py:480-628, 1083-1088)."""

    def __init__(self, config: AlbertConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        word_only = config.factorization == "word"
        self.width = config.hidden_size if word_only else config.embedding_size
        self.layer_norm = LayerNorm(config.layer_norm_eps, dtype=self.dtype_policy, name="layer_norm")
        self.projection = None
        if config.is_projected:
            self.projection = dense(
                config, config.hidden_size, use_bias=not word_only, dtype=self.dtype_policy, name="projection"
            )

    def build(self, input_shape=None):
        config = self.config
        for name, rows, width in (
            ("word_embeddings", config.vocab_size, config.embedding_size),
            ("token_type_embeddings", config.type_vocab_size, self.width),
            ("position_embeddings", config.max_position_embeddings, self.width),
        ):
            # Not autocast: rows are cast after the lookup, not the table before it.
            table = self.add_weight(name=name, shape=(rows, width), initializer=initializer(config), autocast=False)
            setattr(self, name, table)
        self.layer_norm.build((None, self.width))
        if self.projection is not None:
            self.projection.build((None, config.embedding_size))

    def compute_output_shape(self, input_shape=None):
        return (None, None, self.width), (None, None, self.config.hidden_size)

    def call(self, input_ids, segment_ids=None, position_ids=None, seed=None):
        """input_ids, segment_ids, position_ids: int32 [batch, sequence].

        Returns:
            The normalised sum [batch, sequence, embedding_size] (hidden_size where only words are factorised), and
            the encoder's input [batch, sequence, hidden_size].

        Raises:
            UserError: the sequence is longer than the positions (where its length is known when the graph is built).
        """
        words = ops.cast(ops.take(self.word_embeddings, input_ids, axis=0), self.compute_dtype)
        word_only = self.config.factorization == "word"
        if word_only and self.projection is not None:
            words = self.projection(words)
        if position_ids is None:
            length = ops.shape(input_ids)[1]
            self._check_length(length)
            positions = self.position_embeddings[:length]
        else:
            positions = ops.take(self.position_embeddings, position_ids, axis=0)
        if segment_ids is None:
            segment_ids = ops.zeros_like(input_ids)
        segments = ops.take(self.token_type_embeddings, segment_ids, axis=0)
        normalised = self.layer_norm(words + ops.cast(segments + positions, words.dtype))
        dropped = dropout(normalised, self.config.hidden_dropout_prob, seed)
        if word_only or self.projection is None:
            return normalised, dropped
        return normalised, self.projection(dropped)

    def _check_length(self, length):
        limit = self.config.max_position_embeddings
        if isinstance(length, int) and length > limit:
            error = UserError(f"a sequence of {length} tokens is over max_position_embeddings {limit}; cut it")
            # Keras leaves errors with this mark alone; others it puts inside its account of every nested call.
            error._keras_call_info_injected = True
            raise error

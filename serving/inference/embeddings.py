"""Token ids to the encoder's input."""

import tensorflow as tf

from serving.inference.weights import LayerNorm, dense, variable


class Embeddings(tf.Module):
    """As albert_tf.layers.embeddings; gives [tokens, hidden_size], float32 or the dtype of a last projection."""

    def __init__(self, layer, dtype: tf.DType):
        super().__init__()
        self.word_only = layer.config.factorization == "word"
        self.words = variable(layer.word_embeddings, tf.float32, "word_embeddings")
        self.segments = variable(layer.token_type_embeddings, tf.float32, "token_type_embeddings")
        self.positions = variable(layer.position_embeddings, tf.float32, "position_embeddings")
        self.layer_norm = LayerNorm(layer.layer_norm)
        self.projection = None if layer.projection is None else dense(layer.projection, dtype)

    def __call__(self, input_ids: tf.Tensor, segment_ids: tf.Tensor | None, cells: tf.Tensor) -> tf.Tensor:
        """input_ids, segment_ids: int32 [batch, length]; cells: int32 [tokens], which of their elements to embed."""
        positions = cells % tf.shape(input_ids)[1]
        segments = tf.zeros([1], tf.int32) if segment_ids is None else tf.gather(tf.reshape(segment_ids, [-1]), cells)
        input_ids = tf.gather(tf.reshape(input_ids, [-1]), cells)
        words = tf.gather(self.words, input_ids)
        if self.word_only:
            words = tf.cast(self._project(words), tf.float32)
        total = words + tf.gather(self.positions, positions) + tf.gather(self.segments, segments)
        normalised = self.layer_norm(total)
        return normalised if self.word_only else self._project(normalised)

    def _project(self, vectors: tf.Tensor) -> tf.Tensor:
        return vectors if self.projection is None else self.projection(vectors)

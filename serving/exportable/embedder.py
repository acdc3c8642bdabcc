"""A vector for each row, and one for each token."""

import tensorflow as tf

from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from serving.exportable.base import Servable, ServableOptions
from serving.exportable.inputs import BY_LENGTHS, batch_of_lengths
from serving.exportable.signature import Signature, specs
from tfrecords.framing import TokenBatch


class EmbedderServable(Servable):
    """AlbertSentenceEmbedder, or an AlbertEncoder without a head, whose tokens are averaged.

    `embedding` float32 [batch, hidden_size], and `pooled_output` (tanh layer over [CLS]) where a bare encoder has it.
    """

    def __init__(self, model, options: ServableOptions):
        super().__init__(model, options)
        is_embedder = isinstance(model, AlbertSentenceEmbedder)
        self.pooling = model.pooling if is_embedder else "mean"
        self.normalize = is_embedder and model.normalize
        self.is_embedder = is_embedder

    def answer(self, rows: TokenBatch):
        encoded = self.encode(rows)
        sequence = encoded["sequence_output"]
        vectors = sequence[:, 0] if self.pooling == "cls" else mean_of_tokens(sequence, rows.mask)
        if self.normalize:
            vectors /= tf.maximum(tf.norm(vectors, axis=-1, keepdims=True), 1e-12)
        pooled = (
            {} if self.is_embedder or "pooled_output" not in encoded else {"pooled_output": encoded["pooled_output"]}
        )
        return {"embedding": vectors} | pooled

    def ids_signatures(self):
        return super().ids_signatures() | {"tokens": Signature(self.tokens_by_ids, BY_LENGTHS)}

    def text_signatures(self):
        return super().text_signatures() | {"tokens": Signature(self.tokens_by_text, specs("text"))}

    def tokens_by_ids(self, input_ids, lengths):
        """`sequence_output` float32 [batch, length, hidden_size], 0 at padding."""
        return self._tokens(batch_of_lengths(input_ids, lengths))

    def tokens_by_text(self, text):
        """Also `pieces` string [batch, length] and `lengths` int32 [batch]."""
        rows = self.text_rows(text)
        described = self.framer.describe(rows)
        return self._tokens(rows) | {name: described[name] for name in ("lengths", "pieces")}

    def _tokens(self, rows: TokenBatch):
        sequence = self.encode(rows)["sequence_output"]
        return {"sequence_output": sequence * tf.cast(rows.mask, tf.float32)[:, :, tf.newaxis]}


def mean_of_tokens(sequence: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """[batch, length, hidden_size] to [batch, hidden_size], padding left out; mask [batch, length] of any type."""
    weights = tf.cast(mask, tf.float32)[:, :, tf.newaxis]
    return tf.reduce_sum(sequence * weights, axis=1) / tf.reduce_sum(weights, axis=1)

"""A pre-trained model: vectors, words for masks, and the order of two texts."""

import tensorflow as tf

from albert_tf.layers.dense import activation
from albert_tf.models.pretrainer import AlbertPretrainer
from serving.exportable.base import Servable, ServableOptions
from serving.exportable.embedder import mean_of_tokens
from serving.exportable.inputs import BY_LENGTHS, SEGMENTS, batch_of_lengths
from serving.exportable.signature import Signature, specs
from serving.inference.layers import LayerNorm, dense
from tfrecords.framing import TokenBatch

_MASK = "[MASK]"


class PretrainerServable(Servable):
    """AlbertPretrainer: `embedding`, the mean over the tokens, and `pooled_output`, float32 [batch, hidden_size]."""

    def __init__(self, model: AlbertPretrainer, options: ServableOptions):
        super().__init__(model, options)
        self.masked_lm = MaskedLM(model, self.encoder)
        self.pair_head = None if model.pair_head is None else dense(model.pair_head, tf.float32)
        self.head_variables = []

    def answer(self, rows: TokenBatch):
        encoded = self.encode(rows)
        answers = {"embedding": mean_of_tokens(encoded["sequence_output"], rows.mask)}
        return answers | {name: encoded[name] for name in ("pooled_output",) if name in encoded}

    def ids_signatures(self):
        positions = specs("masked_lm_positions", dtype=tf.int32, shape=(None, None))
        signatures = super().ids_signatures() | {"fill_mask": Signature(self.fill_ids, BY_LENGTHS | positions)}
        if self.pair_head is not None:
            signatures["sentence_order"] = Signature(self.order_of_ids, BY_LENGTHS | SEGMENTS)
        return signatures

    def text_signatures(self):
        signatures = super().text_signatures() | {"fill_mask": Signature(self.fill_text, specs("text"))}
        if self.pair_head is not None:
            signatures["sentence_order"] = Signature(self.order_of_texts, specs("first", "second"))
        return signatures

    def fill_ids(self, input_ids, lengths, masked_lm_positions):
        """The likeliest pieces at given positions: `ids` int32 and `probabilities` float32, [batch, positions, k]."""
        rows = batch_of_lengths(input_ids, lengths)
        # A position behind its row means nothing, but must not fail the rest of the batch.
        return self._fill(rows, tf.clip_by_value(masked_lm_positions, 0, tf.shape(rows.mask)[1] - 1))

    def fill_text(self, text):
        """For each "[MASK]" of a text its likeliest `pieces` (string) and `probabilities`, [batch, masks, k].

        Rows with fewer masks than the fullest are filled up with empty pieces of probability 0.
        """
        parts = tf.strings.split(text, _MASK)
        tokens = self.framer.masked(parts.with_values(self.framer.in_graph(parts.values)))
        rows = self.framer.single(tokens).padded()
        masked = tf.equal(rows.input_ids, self.framer.tokenizer.mask_id)
        columns = tf.broadcast_to(tf.range(tf.shape(masked)[1]), tf.shape(masked))
        positions = tf.ragged.boolean_mask(columns, masked)
        found = tf.sequence_mask(positions.row_lengths())[:, :, tf.newaxis]
        best = self._fill(rows, positions.to_tensor())
        return {
            "pieces": tf.where(found, tf.gather(self.framer.pieces, best["ids"]), ""),
            "probabilities": tf.where(found, best["probabilities"], 0.0),
        }

    def order_of_ids(self, input_ids, lengths, segment_ids):
        """`probabilities` float32 [batch, 2] of the pair task's labels: 0 in order, 1 swapped (or random, for NSP)."""
        return self._order(batch_of_lengths(input_ids, lengths, segment_ids))

    def order_of_texts(self, first, second):
        return self._order(self.pair_rows(first, second))

    def _order(self, rows: TokenBatch):
        return {"probabilities": tf.nn.softmax(self.pair_head(self.pool(rows)))}

    def _fill(self, rows: TokenBatch, positions: tf.Tensor):
        gathered = tf.gather(self.encode(rows)["sequence_output"], positions, axis=1, batch_dims=1)
        best, ids = tf.math.top_k(tf.nn.softmax(self.masked_lm(gathered)), self.options.top_k)
        return {"ids": ids, "probabilities": best}


class MaskedLM(tf.Module):
    """As albert_tf.layers.heads.MaskedLMHead, on the word embeddings that the encoder holds already."""

    def __init__(self, model: AlbertPretrainer, encoder):
        super().__init__()
        head = model.masked_lm_head
        self.config = model.encoder.config
        self.embeddings = encoder.embeddings
        self.activation = activation(self.config.hidden_act)
        self.dense = dense(head.dense, tf.float32)
        self.layer_norm = LayerNorm(head.layer_norm)
        self.output_bias = head.output_bias.value

    def __call__(self, vectors: tf.Tensor) -> tf.Tensor:
        """float32 [batch, n, hidden_size] to logits [batch, n, vocab_size]."""
        flat = tf.reshape(vectors, [-1, self.config.hidden_size])
        words = self.layer_norm(self.activation(self.dense(flat)))
        projection = self.embeddings.projection
        if self.config.factorization == "word" and projection is not None:
            words = tf.matmul(words, tf.cast(projection.kernel, tf.float32), transpose_b=True)
        logits = tf.matmul(words, tf.cast(self.embeddings.words, tf.float32), transpose_b=True) + self.output_bias
        return tf.reshape(logits, [tf.shape(vectors)[0], tf.shape(vectors)[1], self.config.vocab_size])

"""The whole encoder as a tf.Module: what `serving.export` puts heads on."""

import dataclasses

import tensorflow as tf

from albert_tf.layers.depth import segments
from albert_tf.layers.encoder import AlbertEncoder
from serving.inference.block import attention, feed_forward
from serving.inference.embeddings import Embeddings
from serving.inference.options import InferenceOptions
from serving.inference.rows import Rows
from serving.inference.weights import AttentionWeights, FeedForwardWeights, dense


def make_encoder(model, options: InferenceOptions | None = None) -> "InferenceEncoder":
    """The inference twin of a Keras model's encoder (or of an AlbertEncoder itself), holding its own weights.

    Raises:
        UserError: the options ask for what this encoder or this TensorFlow cannot do.
    """
    return InferenceEncoder(getattr(model, "encoder", model), (options or InferenceOptions()).resolved())


class InferenceEncoder(tf.Module):
    """Token ids to vectors, the numbers of AlbertEncoder at every real token."""

    def __init__(self, encoder: AlbertEncoder, options: InferenceOptions):
        super().__init__()
        self.config, self.options = encoder.config, options
        dtype = tf.float32 if options.compute == "float32" else tf.bfloat16
        self.embeddings = Embeddings(encoder.embeddings, dtype)
        self.attentions = [AttentionWeights(half, dtype) for half in encoder.attentions]
        self.feed_forwards = [FeedForwardWeights(half, dtype) for half in encoder.feed_forwards]
        self.pooler = None if encoder.pooler is None else dense(encoder.pooler, tf.float32)

    def describe(self) -> dict[str, str]:
        """The options as they were decided, for a manifest."""
        return dataclasses.asdict(self.options)

    def __call__(self, input_ids, lengths, segment_ids=None, input_mask=None) -> dict[str, tf.Tensor]:
        """Encodes a batch.

        Args:
            input_ids: int32 [batch, length].
            lengths: int32 [batch], real tokens of each row; or None where `input_mask` is given.
            segment_ids: int32 [batch, length]; all 0 where None.
            input_mask: int32 [batch, length], 1 for tokens.

        Returns:
            sequence_output float32 [batch, length, hidden_size], and, where there is a pooler, pooled_output float32
            [batch, hidden_size].
        """
        mask = tf.sequence_mask(lengths, tf.shape(input_ids)[1]) if input_mask is None else tf.cast(input_mask, tf.bool)
        rows = Rows(mask, self.config, skip_padding=self.options.padding == "skipped")
        hidden = self._walk(self.embeddings(input_ids, segment_ids, rows.cells), rows)
        return self._outputs(hidden, rows)

    def _walk(self, hidden: tf.Tensor, rows: Rows) -> tf.Tensor:
        for segment in segments(self.config):

            def layer(step, hidden, segment=segment):
                for half in segment.steps:
                    hidden = attention(self.attentions[half.attention], hidden, rows)
                    hidden = feed_forward(self.feed_forwards[half.feed_forward], hidden, self.config)
                return step + 1, hidden

            if segment.repeats == 1:
                hidden = layer(0, hidden)[1]
            else:
                hidden = tf.while_loop(
                    lambda step, hidden, segment=segment: step < segment.repeats, layer, (tf.constant(0), hidden)
                )[1]
        return hidden

    def _outputs(self, hidden: tf.Tensor, rows: Rows) -> dict[str, tf.Tensor]:
        outputs = {"sequence_output": rows.rectangle(hidden)}
        if self.pooler is not None:
            outputs["pooled_output"] = tf.tanh(self.pooler(rows.first_tokens(hidden)))
        return outputs

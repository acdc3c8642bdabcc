"""The best of several answers."""

import tensorflow as tf

from albert_tf.layers.heads import IMPOSSIBLE
from serving.exportable.base import Servable, ServableOptions
from serving.exportable.inputs import batch_of_lengths, batch_of_mask, by_mask
from serving.exportable.signature import Signature, specs
from tfrecords.framing import TokenBatch


class MultipleChoiceServable(Servable):
    """AlbertMultipleChoice: `logits`, `probabilities` float32 [batch, choices], `choice` int32 [batch], its number.

    The number of choices is fixed when exporting: a server that joins requests of different numbers would fill up with
    copies. A row with fewer leaves the rest empty: no tokens, or ""; they get probability 0.
    """

    def __init__(self, model, options: ServableOptions):
        super().__init__(model, options)
        self.head = lambda vectors: model.head(vectors)

    def ids_signatures(self):
        shape = (None, self.options.num_choices, None)
        ids = {name: tf.TensorSpec(shape, tf.int32, name=name) for name in ("input_ids", "segment_ids")}
        lengths = specs("lengths", dtype=tf.int32, shape=shape[:2])
        masked = {
            dtype: {name: tf.TensorSpec(shape, dtype, name=name) for name in by_mask(dtype)}
            for dtype in (tf.int32, tf.int64)
        }
        return {
            "serving_default": Signature(self.by_segments, ids | lengths),
            "masked": Signature(self.by_mask, masked[tf.int32]),
            "int64": Signature(self.by_mask, masked[tf.int64]),
        }

    def text_signatures(self):
        texts = specs("context", "question") | specs("choices", shape=(None, self.options.num_choices))
        return {
            "serving_default": Signature(self.by_choices, texts),
            "tokenize": Signature(self.tokenize, specs("text")),
        }

    def by_segments(self, input_ids, lengths, segment_ids):
        rows = batch_of_lengths(_flat(input_ids), tf.reshape(lengths, [-1]), _flat(segment_ids))
        return self._choose(rows, lengths > 0)

    def by_mask(self, input_ids, input_mask, segment_ids):
        rows = batch_of_mask(_flat(input_ids), _flat(input_mask), _flat(segment_ids))
        # The first position alone: behind it may stand what a server padded with.
        return self._choose(rows, input_mask[..., 0] > 0)

    def by_choices(self, context, question, choices):
        """Also `answer` string [batch], the choice itself.

        A row is [CLS] context [SEP] question and choice [SEP], the choice in place of each "_" in the question or
        behind it (google-research/albert race_utils.py); the second part keeps its last 128 tokens, the context is cut.
        """
        contexts, answers = self.framer.tokenize(context, tf.reshape(_fill_in(question, choices), [-1]))
        contexts = tf.gather(contexts, tf.repeat(tf.range(tf.size(context)), self.options.num_choices))
        rows = self.framer.choices(contexts, answers).padded()
        found = self._choose(rows, choices != "")
        return found | {"answer": tf.gather(choices, found["choice"], batch_dims=1)}

    def answer(self, rows: TokenBatch):
        """`logits` float32 [rows], one of each choice."""
        return {"logits": tf.cast(self.head(self.pool(rows)), tf.float32)[:, 0]}

    def _choose(self, rows: TokenBatch, present: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = tf.reshape(self.answer(rows)["logits"], [-1, self.options.num_choices])
        logits = tf.where(present, logits, IMPOSSIBLE)
        return {
            "choice": tf.argmax(logits, axis=1, output_type=tf.int32),
            "logits": logits,
            "probabilities": tf.nn.softmax(logits) * tf.cast(present, tf.float32),
        }


def _flat(tensor: tf.Tensor) -> tf.Tensor:
    """[batch, choices, length] to [batch * choices, length]."""
    return tf.reshape(tensor, [-1, tf.shape(tensor)[2]])


def _fill_in(question: tf.Tensor, choices: tf.Tensor) -> tf.Tensor:
    """Each choice in the blanks of its question, or behind it; [batch, choices]."""
    parts = tf.strings.split(question, "_")
    place = tf.range(parts.bounding_shape()[1])
    inserted = (place > 0) & (place < parts.row_lengths()[:, tf.newaxis])
    filled = tf.where(inserted[:, tf.newaxis], choices[:, :, tf.newaxis], "") + parts.to_tensor("")[:, tf.newaxis]
    has_blank = (parts.row_lengths() > 1)[:, tf.newaxis]
    behind = question[:, tf.newaxis] + " " + choices
    return tf.where(has_blank, tf.strings.reduce_join(filled, axis=-1), behind)

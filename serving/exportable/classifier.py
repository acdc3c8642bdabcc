"""A class for each row."""

import tensorflow as tf

from serving.exportable.base import Servable, ServableOptions
from serving.exportable.inputs import EXAMPLES, batch_of_examples
from serving.exportable.signature import CLASSIFY, Signature
from tfrecords.base.errors import UserError
from tfrecords.framing import TokenBatch


class ClassifierServable(Servable):
    """AlbertClassifier: `logits` and `probabilities` float32 [batch, classes], `label` string [batch]."""

    def __init__(self, model, options: ServableOptions):
        super().__init__(model, options)
        self.head = lambda vectors: model.head(vectors)
        self.labels = labels_of(options, model.num_classes)

    def answer(self, rows: TokenBatch):
        return self.outputs(self.head(self.pool(rows)), rows)

    def outputs(self, logits: tf.Tensor, rows: TokenBatch):
        logits = tf.cast(logits, tf.float32)
        return {
            "label": tf.gather(tf.constant(self.labels), tf.argmax(logits, axis=-1)),
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
        }

    def ids_signatures(self):
        return super().ids_signatures() | {"classify": Signature(self.classify_ids, EXAMPLES, CLASSIFY)}

    def text_signatures(self):
        return super().text_signatures() | {"classify": Signature(self.classify_text, EXAMPLES, CLASSIFY)}

    def classify_ids(self, inputs):
        return self._classes(batch_of_examples(inputs))

    def classify_text(self, inputs):
        return self._classes(self.example_rows(inputs))

    def _classes(self, rows: TokenBatch):
        """As the Classify RPC wants it: `classes` string and `scores` float32, both [batch, classes]."""
        scores = self.answer(rows)["probabilities"]
        return {"classes": tf.broadcast_to(tf.constant(self.labels), tf.shape(scores)), "scores": scores}


def labels_of(options: ServableOptions, count: int) -> list[str]:
    """Names of the classes; their numbers where the task has no names.

    Raises:
        UserError: the task has another number of labels.
    """
    labels = list(options.task.get("labels") or map(str, range(count)))
    if len(labels) != count:
        raise UserError(
            f"the task names {len(labels)} labels ({', '.join(labels[:5])}{', ...' if len(labels) > 5 else ''}), "
            f"the model has {count} classes; mend task.json (or id2label in config.json)"
        )
    return labels

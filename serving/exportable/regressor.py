"""A number for each row."""

import tensorflow as tf

from serving.exportable.base import Servable, ServableOptions
from serving.exportable.inputs import EXAMPLES, batch_of_examples
from serving.exportable.signature import REGRESS, Signature
from tfrecords.framing import TokenBatch


class RegressorServable(Servable):
    """AlbertRegressor: `value` float32 [batch]."""

    exit_kind = "regression"

    def __init__(self, model, options: ServableOptions):
        super().__init__(model, options)
        self.head = lambda vectors: model.head(vectors)

    def answer(self, rows: TokenBatch):
        return self.outputs(self.head(self.pool(rows)), rows)

    def outputs(self, logits: tf.Tensor, rows: TokenBatch):
        return {"value": tf.cast(logits, tf.float32)[:, 0]}

    def ids_signatures(self):
        return super().ids_signatures() | {"regress": Signature(self.regress_ids, EXAMPLES, REGRESS)}

    def text_signatures(self):
        return super().text_signatures() | {"regress": Signature(self.regress_text, EXAMPLES, REGRESS)}

    def regress_ids(self, inputs):
        """As the Regress RPC wants it: `outputs` float32 [batch]."""
        return {"outputs": self.answer(batch_of_examples(inputs))["value"]}

    def regress_text(self, inputs):
        return {"outputs": self.answer(self.example_rows(inputs))["value"]}

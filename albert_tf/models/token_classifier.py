"""A class for every token, as for named entities."""

import keras

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.early_exit import EarlyExitModel


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertTokenClassifier(EarlyExitModel):
    """Features as AlbertEncoder to float32 logits [batch, sequence, num_classes].

    Give `fit` a sample weight [batch, sequence] that is 0 at padding. early_exit: see EarlyExitModel.
    """

    needs_pooler = False

    def __init__(
        self, encoder: AlbertEncoder, num_classes: int, dropout: float = 0.1, early_exit: bool = False, **kwargs
    ):
        super().__init__(encoder, num_classes, dropout, early_exit, **kwargs)
        self.num_classes = num_classes

    def vectors(self, features, training):
        return self.encoder(features, training=training)["sequence_output"]

    def step_vectors(self, hidden):
        return hidden

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes}

"""A class for every token, as for named entities."""

import keras

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.encoder_model import DenseHeadModel


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertTokenClassifier(DenseHeadModel):
    """Features as AlbertEncoder to float32 logits [batch, sequence, num_classes].

    Give `fit` a sample weight [batch, sequence] that is 0 at padding.
    """

    needs_pooler = False

    def __init__(self, encoder: AlbertEncoder, num_classes: int, dropout: float = 0.1, **kwargs):
        super().__init__(encoder, num_classes, dropout, **kwargs)
        self.num_classes = num_classes

    def vectors(self, features, training):
        return self.encoder(features, training=training)["sequence_output"]

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes}

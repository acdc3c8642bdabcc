"""One of several candidate texts."""

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.features import named
from albert_tf.models.encoder_model import DenseHeadModel, accuracy, classes_loss


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertMultipleChoice(DenseHeadModel):
    """Features of AlbertEncoder with one more axis, [batch, choices, sequence], to float32 logits [batch, choices]."""

    input_rank = 3

    def __init__(self, encoder: AlbertEncoder | AlbertConfig, dropout: float = 0.1, **kwargs):
        super().__init__(encoder, 1, dropout, **kwargs)

    def default_loss(self):
        return classes_loss() | {"metrics": accuracy()}

    def compute_output_shape(self, input_shape=None):
        return (None, None)

    def call(self, features, training=False):
        features = named(features)
        choices, length = ops.shape(features["input_ids"])[1:]
        names = features.keys() & {"input_ids", "input_mask", "segment_ids"}
        rows = {name: ops.reshape(features[name], (-1, length)) for name in sorted(names)}
        return ops.reshape(super().call(rows, training=training), (-1, choices))

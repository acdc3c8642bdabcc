"""A class for every token, as for named entities."""

from collections.abc import Sequence

import keras

from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.early_exit import EarlyExitModel
from albert_tf.models.encoder_model import NamedClasses, accuracy, classes_loss


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertTokenClassifier(NamedClasses, EarlyExitModel):
    """Features as AlbertEncoder to float32 logits [batch, sequence, num_classes].

    Give `fit` a sample weight [batch, sequence] that is 0 at padding. early_exit: see EarlyExitModel. labels: see
    NamedClasses.
    """

    needs_pooler = False

    def __init__(
        self,
        encoder: AlbertEncoder | AlbertConfig,
        num_classes: int,
        dropout: float = 0.1,
        early_exit: bool = False,
        labels: Sequence[str] | None = None,
        **kwargs,
    ):
        super().__init__(encoder, num_classes, dropout, early_exit, **kwargs)
        self.name_classes(num_classes, labels)

    def default_loss(self):
        # Over the words: a mean over all columns would make a batch count less the more padding it has.
        return classes_loss(reduction="mean_with_sample_weight") | {"weighted_metrics": accuracy()}

    def compute_output_shape(self, input_shape=None):
        return (None, None, self.head.units)

    def vectors(self, features, training):
        return self.encoder(features, training=training)["sequence_output"]

    def step_vectors(self, hidden):
        return hidden

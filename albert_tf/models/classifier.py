"""One answer per row: a class or a number (classifier_utils.py:768-812 of google-research/albert)."""

import keras

from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.early_exit import EarlyExitModel


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertClassifier(EarlyExitModel):
    """Features as AlbertEncoder to float32 logits [batch, num_classes]. Compile with a loss `from_logits=True`.

    early_exit: see EarlyExitModel.
    """

    def __init__(
        self, encoder: AlbertEncoder, num_classes: int, dropout: float = 0.1, early_exit: bool = False, **kwargs
    ):
        super().__init__(encoder, num_classes, dropout, early_exit, **kwargs)
        self.num_classes = num_classes

    def get_config(self):
        return {**super().get_config(), "num_classes": self.num_classes}


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertRegressor(EarlyExitModel):
    """Features as AlbertEncoder to float32 [batch, 1], such as STS-B's similarity. Compile with "mse".

    early_exit: see EarlyExitModel.
    """

    def __init__(self, encoder: AlbertEncoder, dropout: float = 0.1, early_exit: bool = False, **kwargs):
        super().__init__(encoder, 1, dropout, early_exit, **kwargs)

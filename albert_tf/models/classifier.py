"""One answer per row: a class or a number (classifier_utils.py:768-812 of google-research/albert)."""

from collections.abc import Sequence

import keras

from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.early_exit import EarlyExitModel
from albert_tf.models.encoder_model import NamedClasses, accuracy, classes_loss


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertClassifier(NamedClasses, EarlyExitModel):
    """Features as AlbertEncoder to float32 logits [batch, num_classes]. Compile with a loss `from_logits=True`.

    early_exit: see EarlyExitModel. labels: see NamedClasses.
    """

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
        return classes_loss() | {"metrics": accuracy()}


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertRegressor(EarlyExitModel):
    """Features as AlbertEncoder to float32 [batch, 1], such as STS-B's similarity. Compile with "mse".

    early_exit: see EarlyExitModel.
    """

    def __init__(self, encoder: AlbertEncoder | AlbertConfig, dropout: float = 0.1, early_exit: bool = False, **kwargs):
        super().__init__(encoder, 1, dropout, early_exit, **kwargs)

    def default_loss(self):
        return {"loss": "mse", "metrics": ["mae"]}

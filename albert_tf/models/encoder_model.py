"""What every model here is: an encoder, and something on it."""

import keras
from keras import ops

from albert_tf.layers.dense import dense
from albert_tf.layers.encoder import AlbertEncoder
from tfrecords.errors import UserError


def variables_of(prefix: str, layer: keras.layers.Layer) -> dict[str, keras.Variable]:
    """A simple layer's variables as prefix/kernel, prefix/bias and so on."""
    return {f"{prefix}/{variable.name}": variable for variable in layer.variables}


class EncoderModel(keras.Model):
    """Holds `encoder` (an AlbertEncoder) and keeps it through `get_config` and `from_config`."""

    def __init__(self, encoder: AlbertEncoder, **kwargs):
        kwargs.setdefault("dtype", encoder.dtype_policy)
        super().__init__(**kwargs)
        self.encoder = encoder

    def head_variables(self) -> dict[str, keras.Variable]:
        """The model's own variables by the names that `checkpoints` knows them by."""
        return {}

    def get_config(self):
        return {**super().get_config(), "encoder": keras.saving.serialize_keras_object(self.encoder)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "encoder": keras.saving.deserialize_keras_object(config["encoder"])})


class DenseHeadModel(EncoderModel):
    """Dropout, then one dense layer, on what `vectors` takes from the encoder.

    Raises:
        UserError: the encoder lacks the pooler that the model needs.
    """

    needs_pooler = True

    def __init__(self, encoder: AlbertEncoder, units: int, dropout: float = 0.1, **kwargs):
        if self.needs_pooler and encoder.pooler is None:
            raise UserError(f"{type(self).__name__} needs an encoder with a pooler")
        super().__init__(encoder, **kwargs)
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.head = dense(encoder.config, units, dtype=self.dtype_policy, name="head")
        self.build()

    def build(self, input_shape=None):
        self.head.build((None, self.encoder.config.hidden_size))

    def head_variables(self):
        return variables_of("classifier", self.head)

    def vectors(self, features, training):
        """The pooled output [batch, hidden_size]; a subclass may take others."""
        return self.encoder(features, training=training)["pooled_output"]

    def call(self, features, training=False):
        logits = self.head(self.dropout(self.vectors(features, training), training=training))
        return ops.cast(logits, "float32")

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout.rate}

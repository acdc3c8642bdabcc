"""What every model here is: an encoder, and something on it."""

import keras
from keras import ops

from albert_tf.layers.dense import dense
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.resumable_dropout import ResumableDropout
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

    inner_heads: how many more such layers there are, for the outputs of earlier steps.

    Raises:
        UserError: the encoder lacks the pooler that the model needs.
    """

    needs_pooler = True

    def __init__(self, encoder: AlbertEncoder, units: int, dropout: float = 0.1, inner_heads: int = 0, **kwargs):
        if self.needs_pooler and encoder.pooler is None:
            raise UserError(f"{type(self).__name__} needs an encoder with a pooler")
        super().__init__(encoder, **kwargs)
        self.dropout = ResumableDropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.head = dense(encoder.config, units, dtype=self.dtype_policy, name="head")
        self.inner_heads = [
            dense(encoder.config, units, dtype=self.dtype_policy, name=f"exit_{i}") for i in range(inner_heads)
        ]
        self.build()

    def build(self, input_shape=None):
        for head in (self.head, *self.inner_heads):
            head.build((None, self.encoder.config.hidden_size))

    def head_variables(self):
        variables = variables_of("classifier", self.head)
        for i, head in enumerate(self.inner_heads):
            variables |= variables_of(f"exit_{i}", head)
        return variables

    def vectors(self, features, training):
        """The pooled output [batch, hidden_size]; a subclass may take others."""
        return self.encoder(features, training=training)["pooled_output"]

    def call(self, features, training=False):
        return self.logits(self.head, self.vectors(features, training), training)

    def logits(self, head, vectors, training):
        return ops.cast(head(self.dropout(vectors, training=training)), "float32")

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout.rate}

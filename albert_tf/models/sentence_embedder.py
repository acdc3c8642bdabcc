"""A text as one vector."""

import keras
from keras import ops

from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.layers.features import named
from albert_tf.layers.heads import mean_pool, unit_length
from albert_tf.models.encoder_model import EncoderModel
from tfrecords.base.errors import UserError

POOLINGS = ("mean", "cls")


@keras.saving.register_keras_serializable(package="albert_tf")
class AlbertSentenceEmbedder(EncoderModel):
    """Features as AlbertEncoder to float32 [batch, hidden_size].

    Args:
        pooling: "mean" over the tokens that are no padding, or the "cls" token's last hidden state.
        normalize: whether vectors have length 1, so that a dot product is their cosine.

    Raises:
        UserError: an unknown pooling.
    """

    def __init__(self, encoder: AlbertEncoder | AlbertConfig, pooling: str = "mean", normalize: bool = True, **kwargs):
        super().__init__(encoder, pooler=False, **kwargs)
        if pooling not in POOLINGS:
            raise UserError(f"pooling '{pooling}' is none of {', '.join(POOLINGS)}")
        self.pooling, self.normalize = pooling, normalize
        self.build((None, None))

    def build(self, input_shape=None):
        # Nothing of its own.
        self.built = True

    def compute_output_shape(self, input_shape=None):
        return (None, self.encoder.config.hidden_size)

    def call(self, features, training=False):
        features = named(features)
        hidden = self.encoder(features, training=training)["sequence_output"]
        if self.pooling == "cls":
            vectors = ops.cast(hidden[:, 0], "float32")
        else:
            vectors = mean_pool(hidden, features.get("input_mask", ops.ones_like(features["input_ids"])))
        return unit_length(vectors) if self.normalize else vectors

    def get_config(self):
        return {**super().get_config(), "pooling": self.pooling, "normalize": self.normalize}

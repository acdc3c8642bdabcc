"""Everything between tensors and trained weights."""

import tfrecords  # noqa: F401, I001  (first: it quiets TensorFlow's start-up log)

from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer

__all__ = ["AlbertConfig", "AlbertEncoder", "AlbertPretrainer"]

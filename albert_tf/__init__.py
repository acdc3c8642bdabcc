"""Everything between tensors and trained weights."""

import tfrecords.quiet_tensorflow  # noqa: F401, I001  (first of all)

from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifier import AlbertClassifier, AlbertRegressor
from albert_tf.models.multiple_choice import AlbertMultipleChoice
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.models.span_predictor import AlbertSpanPredictor
from albert_tf.models.token_classifier import AlbertTokenClassifier

__all__ = [
    "AlbertClassifier",
    "AlbertConfig",
    "AlbertEncoder",
    "AlbertMultipleChoice",
    "AlbertPretrainer",
    "AlbertRegressor",
    "AlbertSentenceEmbedder",
    "AlbertSpanPredictor",
    "AlbertTokenClassifier",
]

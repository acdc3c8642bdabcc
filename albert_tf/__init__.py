"""Everything between tensors and trained weights."""

import os
from typing import Any

__version__ = "0.1.0"

# Models alone have no need of TensorFlow under another Keras backend.
if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
    import tfrecords.base.quiet_tensorflow  # noqa: F401

from albert_tf import optimizers  # noqa: F401  registered with Keras: models saved with them load
from albert_tf.config import AlbertConfig
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifiers import AlbertClassifier, AlbertMultipleChoice, AlbertRegressor, AlbertTokenClassifier
from albert_tf.models.early_exit import LearnedExit
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.models.span_predictor import AlbertSpanPredictor


def __getattr__(name: str) -> Any:
    # Not imported with the models: files of other code bases, and texts, need TensorFlow.
    if name == "load":
        from albert_tf.loading import load

        return load
    if name == "Preprocessor":
        from albert_tf.preprocessing import Preprocessor

        return Preprocessor
    raise AttributeError(f"module 'albert_tf' has no attribute '{name}'")


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
    "LearnedExit",
    "Preprocessor",
    "load",
]

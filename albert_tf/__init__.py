"""ALBERT models, their training and their files."""

import importlib
import os
from typing import TYPE_CHECKING, Any

from tfrecords.base.machine.started import is_our_command
from tfrecords.base.version import VERSION as __version__

# At once for everyone else, since Keras loads only what was registered with it. A command answers --help, and says
# what is wrong with its flags, in a tenth of the time that TensorFlow takes to start.
if TYPE_CHECKING or not is_our_command():
    # Models alone have no need of TensorFlow under another Keras backend.
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        import tfrecords.base.machine.quiet_tensorflow  # noqa: F401

    from albert_tf.config import AlbertConfig
    from albert_tf.layers.encoder import AlbertEncoder
    from albert_tf.models.classifiers import (
        AlbertClassifier,
        AlbertMultipleChoice,
        AlbertRegressor,
        AlbertTokenClassifier,
    )
    from albert_tf.models.permutation import XlnetPretrainer
    from albert_tf.models.pretrainer import AlbertPretrainer
    from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
    from albert_tf.models.span_predictor import AlbertSpanPredictor

if TYPE_CHECKING:
    from albert_tf.embeddings.index import open_index
    from albert_tf.loading.load import load
    from albert_tf.loading.preprocessing import Preprocessor
    from albert_tf.models.pair_trainer import PairTrainer
    from albert_tf.tasks.pairs import TextPairs

_HOMES = {
    "AlbertConfig": "config",
    "AlbertEncoder": "layers.encoder",
    "AlbertClassifier": "models.classifiers",
    "AlbertMultipleChoice": "models.classifiers",
    "AlbertRegressor": "models.classifiers",
    "AlbertTokenClassifier": "models.classifiers",
    "AlbertPretrainer": "models.pretrainer",
    "XlnetPretrainer": "models.permutation",
    "AlbertSentenceEmbedder": "models.sentence_embedder",
    "AlbertSpanPredictor": "models.span_predictor",
    # Never with the models: files of other code bases, and texts, need TensorFlow.
    "PairTrainer": "models.pair_trainer",
    "Preprocessor": "loading.preprocessing",
    "TextPairs": "tasks.pairs",
    "load": "loading.load",
    "open_index": "embeddings.index",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'albert_tf' has no attribute '{name}'")
    return getattr(importlib.import_module(f"albert_tf.{_HOMES[name]}"), name)


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
    "PairTrainer",
    "Preprocessor",
    "TextPairs",
    "XlnetPretrainer",
    "__version__",
    "load",
    "open_index",
]

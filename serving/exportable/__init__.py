"""What a server runs: a model's answers as TensorFlow functions over token ids, or over text.

Only core TensorFlow ops and, for text, the tokenizer's own, so that an unmodified tensorflow_model_server loads them.
"""

from albert_tf.layers.base_model import is_quantized
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifiers import AlbertClassifier, AlbertMultipleChoice, AlbertRegressor, AlbertTokenClassifier
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.models.span_predictor import AlbertSpanPredictor
from serving.exportable.base import Servable, ServableOptions
from serving.exportable.classifier import ClassifierServable
from serving.exportable.embedder import EmbedderServable
from serving.exportable.multiple_choice import MultipleChoiceServable
from serving.exportable.pretrainer import PretrainerServable
from serving.exportable.regressor import RegressorServable
from serving.exportable.signature import CLASSIFY, PREDICT, REGRESS, Signature
from serving.exportable.spans import SpanServable
from serving.exportable.token_classifier import TokenClassifierServable
from tfrecords.base.errors import UserError

__all__ = ["CLASSIFY", "PREDICT", "REGRESS", "Servable", "ServableOptions", "Signature", "make_servable"]

SERVABLES = {
    AlbertPretrainer: PretrainerServable,
    AlbertClassifier: ClassifierServable,
    AlbertRegressor: RegressorServable,
    AlbertSpanPredictor: SpanServable,
    AlbertMultipleChoice: MultipleChoiceServable,
    AlbertTokenClassifier: TokenClassifierServable,
    AlbertSentenceEmbedder: EmbedderServable,
    AlbertEncoder: EmbedderServable,
}


def make_servable(model, options: ServableOptions) -> Servable:
    """Raises UserError for a model with a head that has no servable, or one that Keras has quantized."""
    if is_quantized(model):
        raise UserError("the model was rounded by quantize('int8'); export it as it was before, with --compute=int8")
    if type(model) not in SERVABLES:
        known = ", ".join(kind.__name__ for kind in SERVABLES)
        raise UserError(f"a {type(model).__name__} cannot be exported; these can: {known}")
    return SERVABLES[type(model)](model, options)

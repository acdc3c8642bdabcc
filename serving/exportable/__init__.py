"""What a server runs: a model's answers as TensorFlow functions over token ids, or over text.

Only core TensorFlow ops and, for text, the tokenizer's own, so that an unmodified tensorflow_model_server loads them.
"""

from albert_tf.extension import REGISTRY
from albert_tf.layers.encoder import AlbertEncoder
from albert_tf.models.classifiers import AlbertClassifier, AlbertMultipleChoice, AlbertRegressor, AlbertTokenClassifier
from albert_tf.models.permutation import XlnetPretrainer
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.models.sentence_embedder import AlbertSentenceEmbedder
from albert_tf.models.span_predictor import AlbertSpanPredictor
from serving.exportable.base import Exportable, ExportOptions
from serving.exportable.classifiers import ClassifierExportable, RegressorExportable, TokenClassifierExportable
from serving.exportable.embedders import EmbedderExportable, PretrainerExportable
from serving.exportable.multiple_choice import MultipleChoiceExportable
from serving.exportable.spans import SpanExportable
from serving.exportable.ways import CLASSIFY, PREDICT, REGRESS, Signature
from serving.inference import InferenceEncoder
from tfrecords.base.errors import UserError

__all__ = ["CLASSIFY", "PREDICT", "REGRESS", "ExportOptions", "Exportable", "Signature", "make_exportable"]

EXPORTABLES = {
    AlbertPretrainer: PretrainerExportable,
    AlbertClassifier: ClassifierExportable,
    AlbertRegressor: RegressorExportable,
    AlbertSpanPredictor: SpanExportable,
    AlbertMultipleChoice: MultipleChoiceExportable,
    AlbertTokenClassifier: TokenClassifierExportable,
    AlbertSentenceEmbedder: EmbedderExportable,
    AlbertEncoder: EmbedderExportable,
    # Without words for masks: those come of its query stream, and content alone is what an export computes.
    XlnetPretrainer: EmbedderExportable,
}

# Those that the inference encoder has a form of.
_EXTENSIONS = (
    *("step_signal", "hyper_connections", "halting", "equilibrium", "depth_lora", "random_depth", "rotary", "relative"),
    "window",
)


def make_exportable(model, options: ExportOptions, encoder: InferenceEncoder | None = None) -> Exportable:
    """Makes the exportable twin of a model.

    Args:
        model: A model of this library, or an AlbertEncoder.
        options: What it is exported for.
        encoder: What takes the place of the inference encoder.

    Returns:
        The twin, which shares no weights with the model.

    Raises:
        UserError: for a model that cannot be exported, or dimensions that it has not.

    >>> from albert_tf import AlbertConfig, AlbertRegressor
    >>> config = AlbertConfig(vocab_size=50, embedding_size=4, hidden_size=8, num_hidden_layers=2,
    ...                       num_attention_heads=2, intermediate_size=16)
    >>> list(make_exportable(AlbertRegressor(config), ExportOptions(max_seq_length=16)).signatures())
    ['serving_default', 'regress', 'masked', 'int64']
    """
    if type(model) not in EXPORTABLES:
        known = ", ".join(kind.__name__ for kind in EXPORTABLES)
        raise UserError(f"a {type(model).__name__} cannot be exported; these can: {known}")
    for one in getattr(model, "encoder", model).config.extensions:
        if one.name not in _EXTENSIONS:
            key = REGISTRY[one.name].keys[0]
            raise UserError(
                f"exports do not compute {key} {getattr(one, key)!r} yet; ask the model itself, by"
                " albert_tf.load(...).predict(...)"
            )
    kind = EXPORTABLES[type(model)]
    if options.dimensions and not issubclass(kind, EmbedderExportable):
        raise UserError(f"--dimensions is of embeddings, and a {type(model).__name__} gives none; leave it out")
    return kind(model, options, encoder)

"""What a server runs: a model's answers as TensorFlow functions over token ids, or over text.

Only core TensorFlow ops and, for text, the tokenizer's own, so that an unmodified tensorflow_model_server loads them.
"""

from serving.exportable import classifiers, embedders, multiple_choice, pretrainer, spans  # noqa: F401  (the kinds)
from serving.exportable.base import Exportable, make_exportable
from serving.exportable.inputs import CLASSIFY, PREDICT, REGRESS, Signature
from serving.exportable.options import ExportOptions

__all__ = ["CLASSIFY", "PREDICT", "REGRESS", "ExportOptions", "Exportable", "Signature", "make_exportable"]

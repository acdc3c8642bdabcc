"""A model's answers in TensorFlow over token ids or text, as functions of a server.

They use only core TensorFlow ops and the tokenizer's, so an unmodified tensorflow_model_server loads them.
"""

from serving.exportable import classifiers, embedders, multiple_choice, pretrainer, spans  # noqa: F401  (the kinds)
from serving.exportable.base import Exportable, make_exportable
from serving.exportable.inputs import CLASSIFY, PREDICT, REGRESS, ExportSignature
from serving.exportable.options import ExportOptions

__all__ = ["CLASSIFY", "PREDICT", "REGRESS", "ExportOptions", "ExportSignature", "Exportable", "make_exportable"]

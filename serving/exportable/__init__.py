"""The signatures of an export: TensorFlow functions that compute a model's outputs from token ids or text.

An unmodified tensorflow_model_server loads them: they use only ops of core TensorFlow and of the tokenizer.
"""

from serving.exportable import classifiers, embedders, spans  # noqa: F401  (the kinds)
from serving.exportable.base import Exportable, ExportOptions, make_exportable
from serving.exportable.inputs import CLASSIFY, PREDICT, REGRESS, ExportSignature

__all__ = ["CLASSIFY", "PREDICT", "REGRESS", "ExportOptions", "ExportSignature", "Exportable", "make_exportable"]

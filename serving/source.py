"""What is to be exported: a model, with the tokenizer and the description of its task that lie beside it."""

from albert_tf.loading import Loaded as Source
from albert_tf.loading import load as load_source

__all__ = ["Source", "load_source"]

"""The encoder of exports: its own steps over rows without padding and raw TensorFlow ops, which a CPU runs fast."""

from albert_tf.models.exit_rules import ExitRule
from serving.inference.encoder import InferenceEncoder, make_encoder
from serving.inference.options import InferenceOptions

__all__ = ["ExitRule", "InferenceEncoder", "InferenceOptions", "make_encoder"]

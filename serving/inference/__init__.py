"""The encoder once more, for inference: raw TensorFlow ops, chosen for what a CPU runs fast."""

from albert_tf.models.exit_rules import ExitRule
from serving.inference.encoder import InferenceEncoder, make_encoder
from serving.inference.options import InferenceOptions

__all__ = ["ExitRule", "InferenceEncoder", "InferenceOptions", "make_encoder"]

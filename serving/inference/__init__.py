"""The encoder of exports: TensorFlow ops that skip padding, fast on CPUs."""

from albert_tf.models.exit_rules import ExitRule
from serving.inference.encoder import InferenceEncoder, InferenceOptions, make_encoder

__all__ = ["ExitRule", "InferenceEncoder", "InferenceOptions", "make_encoder"]

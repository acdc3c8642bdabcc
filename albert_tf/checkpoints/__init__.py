"""Conversion of checkpoints from and to other code bases."""

from albert_tf.checkpoints.huggingface import load_huggingface, save_huggingface
from albert_tf.checkpoints.keras_hub import load_keras_hub
from albert_tf.checkpoints.official import load_official, save_official

__all__ = [
    "load_huggingface",
    "load_keras_hub",
    "load_official",
    "save_huggingface",
    "save_official",
]

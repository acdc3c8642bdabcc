"""Weights from other code bases, and back."""

from albert_tf.checkpoints.official import load_official, save_official

__all__ = ["load_official", "save_official"]

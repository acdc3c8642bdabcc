"""Answers texts with LiteRT versions, without TensorFlow."""

from serving.lite.model import LiteModel

__all__ = ["LiteModel"]

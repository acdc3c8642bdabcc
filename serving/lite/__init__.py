"""Answers texts with LiteRT versions, without TensorFlow."""

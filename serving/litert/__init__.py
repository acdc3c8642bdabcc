"""Writes LiteRT (TensorFlow Lite) versions of a servable."""

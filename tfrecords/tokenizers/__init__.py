"""Converts text to token ids and back, in Python and in TensorFlow graphs, with equal ids."""

"""Keras models: an encoder with heads."""

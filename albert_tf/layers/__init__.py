"""Layers, in the order in which data passes them."""

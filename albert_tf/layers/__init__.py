"""Layers, in the order in which data passes them."""

from typing import Any

# A tensor of the backend that Keras runs on, or of NumPy.
Tensor = Any

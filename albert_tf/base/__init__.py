"""Keras utilities independent of ALBERT: layers, files, checks of data."""

from typing import Any

# A tensor of the backend that Keras runs on, or of NumPy.
Tensor = Any

"""Keras plumbing that any model could use: layers, files, checks of data. Nothing here knows ALBERT."""

from typing import Any

# A tensor of the backend that Keras runs on, or of NumPy.
Tensor = Any

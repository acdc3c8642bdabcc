"""Answers texts with LiteRT versions, without TensorFlow."""

from typing import Any

__all__ = ["LiteModel"]


# Whoever reads a description alone needs no LiteRT.
def __getattr__(name: str) -> Any:
    if name != "LiteModel":
        raise AttributeError(f"module 'serving.lite' has no attribute '{name}'")
    from serving.lite.model import LiteModel

    return LiteModel
